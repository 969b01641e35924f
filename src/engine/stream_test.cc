#include "engine/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/clock.h"
#include "engine/testing/engine_fixture.h"

namespace invar {
namespace {

TEST(Stream, events_come_in_order_however_they_were_pushed) {
  Stream stream;
  std::vector<TokenEvent> events;
  int32_t pushed = 0, seen = 0;
  for (const int32_t n : {1, 3, 0, 2, 5}) {
    for (int32_t i = 0; i < n; ++i)
      events.push_back({.token = pushed++});
    stream.push_all(events);
    EXPECT_TRUE(events.empty());
    if (n == 3) {
      EXPECT_EQ(stream.try_next()->token, seen++);  // the others of this take-over are still there
    }
  }
  stream.push({.finish = FinishReason::kStop});
  while (seen < pushed)
    EXPECT_EQ(stream.next().token, seen++);
  EXPECT_EQ(stream.next().finish, FinishReason::kStop);
  EXPECT_FALSE(stream.try_next().has_value());
}

TEST(Stream, consumer_that_sleeps_is_woken) {
  Stream stream;
  std::thread producer([&] {
    std::vector<TokenEvent> events;
    for (int32_t i = 0; i < 10000; ++i) {
      events.push_back({.token = i});
      stream.push_all(events);
    }
  });
  for (int32_t i = 0; i < 10000; ++i)
    ASSERT_EQ(stream.next().token, i);
  producer.join();
}

TEST(Stream, in_flow_it_hands_the_same_arrays_back_and_forth) {
  Stream stream;
  std::vector<TokenEvent> events;
  const auto round = [&] {
    events.push_back({.token = 1});
    const TokenEvent* at = events.data();
    stream.push_all(events);
    EXPECT_TRUE(stream.try_next().has_value());
    EXPECT_FALSE(stream.try_next().has_value());
    return at;
  };
  std::vector<const TokenEvent*> arrays;
  for (int i = 0; i < 9; ++i)
    arrays.push_back(round());
  for (size_t i = 6; i < arrays.size(); ++i)
    EXPECT_NE(std::find(arrays.begin(), arrays.begin() + 6, arrays[i]), arrays.begin() + 6);
}

struct Watched {
  std::shared_ptr<std::atomic<bool>> cancels = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<Stream> stream = std::make_shared<Stream>(cancels);
  std::shared_ptr<Stream> handle = Stream::handle_of(stream);
};

TEST(Stream, the_last_handle_that_goes_cancels) {
  Watched w;
  std::shared_ptr<Stream> another = w.handle;
  w.handle = nullptr;
  EXPECT_FALSE(w.stream->cancelled());
  EXPECT_FALSE(*w.cancels);
  another = nullptr;
  EXPECT_TRUE(w.stream->cancelled());
  EXPECT_TRUE(*w.cancels);
}

TEST(Stream, a_handle_outlives_the_engine_s_side) {
  Watched w;
  w.stream->push({.finish = FinishReason::kCancelled});
  w.stream = nullptr;
  EXPECT_EQ(w.handle->next().finish, FinishReason::kCancelled);
}

TEST(Stream, nobody_is_told_that_what_has_ended_is_cancelled) {
  Watched w;
  w.stream->push({.token = 1});
  w.stream->push({.token = 2, .finish = FinishReason::kLength});
  w.handle = nullptr;
  EXPECT_TRUE(w.stream->cancelled());
  EXPECT_FALSE(*w.cancels);
}

TEST(Notify, comes_once_per_step_that_had_events_when_they_are_there) {
  TestEngine t({.prefill_chunk = 10});
  int32_t calls = 0;
  std::shared_ptr<Stream> stream;
  std::vector<int32_t> events_per_call;
  GenerateRequest r = greedy_request(25, 4);
  r.prompt_logprobs = 0;
  r.notify = [&] {
    ++calls;
    events_per_call.push_back(0);
    while (auto event = stream->try_next()) {
      ++events_per_call.back();
      EXPECT_GT(event->published_ns, 0);
      EXPECT_LE(event->published_ns, now_ns());
    }
  };
  stream = t.submit(std::move(r));
  t.drain();
  // Scores of the chunks [0, 10), [10, 20), [20, 25): tokens 0 to 10, 11 to 20, 21 to 24 and the first of
  // four.
  EXPECT_EQ(events_per_call, (std::vector<int32_t>{11, 10, 5, 1, 1, 1}));
}

TEST(Notify, serves_every_choice_and_tells_of_ends_without_a_token) {
  TestEngine t;
  int32_t calls = 0;
  GenerateRequest r = greedy_request(25, 3);
  r.notify = [&] { ++calls; };
  const auto streams = t.submit(std::move(r), 3);
  streams[1]->cancel();
  t.drain();
  EXPECT_EQ(calls, 3 + 1 + 3);
}

TEST(Notify, what_it_throws_cancels_its_own_request) {
  TestEngine t;
  const Answer expected = t.run(greedy_request(5, 10));
  GenerateRequest r = greedy_request(25, 10);
  r.notify = [] { throw std::runtime_error("no memory"); };
  auto bad = t.submit(std::move(r));
  auto good = t.submit(greedy_request(5, 10));
  t.drain();
  Answer a, b;
  EXPECT_TRUE(collect(*bad, &a));
  EXPECT_TRUE(collect(*good, &b));
  EXPECT_EQ(a.finish, FinishReason::kCancelled);
  EXPECT_EQ(b.tokens, expected.tokens);
}

// Those that wait are looked at only when somebody cancels.
TEST(Engine, whoever_waits_or_has_not_arrived_can_go) {
  TestEngine t({.max_batch = 1});
  auto running = t.submit(greedy_request(5, 40));
  auto waiting = t.submit(greedy_request(5, 40));
  auto dropped = t.submit(greedy_request(5, 40));
  auto choices = t.submit(greedy_request(5, 40), 3);
  t.engine->step();
  auto not_arrived = t.submit(greedy_request(5, 40));
  waiting->cancel();
  dropped = nullptr;
  choices[1]->cancel();
  not_arrived->cancel();
  t.engine->step();
  Answer answer;
  for (Stream* stream : {waiting.get(), choices[1].get(), not_arrived.get()})
    EXPECT_EQ(stream->try_next()->finish, FinishReason::kCancelled);
  EXPECT_EQ(t.engine->stats().live, 3);
  EXPECT_EQ(t.engine->stats().requests.cancelled, 4);
  t.drain();
  EXPECT_TRUE(collect(*running, &answer));
  for (const int i : {0, 2}) {
    Answer choice;
    EXPECT_TRUE(collect(*choices[size_t(i)], &choice));
    EXPECT_EQ(choice.finish, FinishReason::kLength);
  }
  EXPECT_EQ(t.engine->stats().live, 0);
}

TEST(Engine, requests_dropped_while_the_engine_runs_on_its_own_leave_nothing) {
  TestEngine t({.max_batch = 2});
  t.engine->start();
  {
    std::vector<std::shared_ptr<Stream>> streams;
    for (int32_t i = 0; i < 6; ++i)
      streams.push_back(t.submit(greedy_request(40, 900)));
    streams[0]->next();
    EXPECT_EQ(t.engine->stats().live, 6);
  }
  while (t.engine->stats().live > 0)
    std::this_thread::yield();
  EXPECT_EQ(t.engine->stats().requests.cancelled, 6);
  auto after = t.submit(greedy_request(3, 1));
  EXPECT_EQ(after->next().finish, FinishReason::kLength);
}

}  // namespace
}  // namespace invar
