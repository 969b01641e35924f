#include "engine/engine.h"

#include <gtest/gtest.h>

#include "engine/testing/engine_fixture.h"

namespace invar {
namespace {

GenerateRequest request(std::vector<int32_t> prompt, int32_t max_tokens) {
  GenerateRequest r;
  r.prompt = std::move(prompt);
  r.max_tokens = max_tokens;
  r.sampling.temperature = 0;
  return r;
}

std::vector<int32_t> prompt_of(int32_t n, int32_t seed = 0) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < n; ++i)
    prompt.push_back(int32_t(fake_mix(uint64_t(i + 1000 * seed)) % kFakeVocab));
  return prompt;
}

TEST(Engine, gives_max_tokens_and_says_length) {
  TestEngine t;
  const Answer a = t.run(request({1, 2, 3}, 5));
  EXPECT_EQ(a.tokens.size(), 5u);
  EXPECT_EQ(a.finish, FinishReason::kLength);
  ASSERT_EQ(a.logits.size(), 5u);
  for (int32_t i = 0; i < 5; ++i)
    EXPECT_EQ(a.logits[size_t(i)].first, 2 + i);
  EXPECT_EQ(t.engine->stats().pages_used, 0);
  EXPECT_EQ(t.engine->stats().generated_tokens, 5);
  EXPECT_EQ(t.engine->stats().prompt_tokens, 3);
  EXPECT_EQ(t.engine->stats().recomputed_tokens, 0);
  EXPECT_FALSE(t.engine->step());
}

TEST(Engine, stop_id_ends_without_being_part_of_the_answer) {
  TestEngine t;
  const Answer free_run = t.run(request({5, 6}, 8));
  GenerateRequest r = request({5, 6}, 8);
  r.stop_ids = {free_run.tokens[3]};
  const Answer stopped = t.run(std::move(r));
  const size_t at = size_t(std::find(free_run.tokens.begin(), free_run.tokens.end(), free_run.tokens[3]) -
                           free_run.tokens.begin());
  EXPECT_EQ(stopped.tokens,
            std::vector<int32_t>(free_run.tokens.begin(), free_run.tokens.begin() + long(at)));
  EXPECT_EQ(stopped.finish, FinishReason::kStop);

  GenerateRequest ignoring = request({5, 6}, 8);
  ignoring.stop_ids = {free_run.tokens[3]};
  ignoring.ignore_eos = true;
  EXPECT_EQ(t.run(std::move(ignoring)).tokens, free_run.tokens);
}

TEST(Engine, ends_at_the_context) {
  TestEngine t({.context = 100});
  const Answer a = t.run(request(prompt_of(90), 50));
  EXPECT_EQ(a.tokens.size(), 10u);
  EXPECT_EQ(a.finish, FinishReason::kLength);
}

TEST(Engine, scores_a_prompt_without_generating) {
  TestEngine t({.max_step_tokens = 100, .max_batch = 7, .max_logit_rows = 7});
  GenerateRequest r = request(prompt_of(100), 0);
  r.all_prompt_logits = true;
  const Answer a = t.run(std::move(r));
  EXPECT_TRUE(a.tokens.empty());
  EXPECT_EQ(a.finish, FinishReason::kLength);
  ASSERT_EQ(a.logits.size(), 100u);
  for (int32_t i = 0; i < 100; ++i)
    EXPECT_EQ(a.logits[size_t(i)].first, i);
  for (const StepRecord& step : t.trace)
    EXPECT_LE(step.logit_rows, 7);
}

TEST(Engine, prompt_logits_and_answer_together_show_each_position_once) {
  TestEngine t({.prefill_chunk = 9});
  GenerateRequest r = request(prompt_of(70), 6);
  r.all_prompt_logits = true;
  const Answer a = t.run(std::move(r));
  ASSERT_EQ(a.logits.size(), 75u);
  for (int32_t i = 0; i < 75; ++i)
    EXPECT_EQ(a.logits[size_t(i)].first, i);
  EXPECT_EQ(a.tokens, t.run(request(prompt_of(70), 6)).tokens);
}

TEST(Engine, logprobs_travel_with_their_tokens) {
  TestEngine t;
  GenerateRequest r = request({1, 2}, 3);
  r.sampling.logprobs = 2;
  auto stream = t.submit(std::move(r));
  t.drain();
  for (int i = 0; i < 3; ++i) {
    const TokenEvent event = stream->next();
    EXPECT_LT(event.logprob, 0);
    ASSERT_EQ(event.alternatives.size(), 2u);
    EXPECT_EQ(event.alternatives[0].token, *event.token) << "temperature 0";
    EXPECT_EQ(event.alternatives[0].logprob, event.logprob);
  }
}

TEST(Engine, cancel_frees_the_pages_within_one_step) {
  TestEngine t;
  auto running = t.submit(request(prompt_of(200), 500));
  auto dropped = t.submit(request(prompt_of(200, 1), 500));
  for (int i = 0; i < 3; ++i)
    t.engine->step();
  EXPECT_GE(t.engine->stats().pages_used, 8);
  running->cancel();
  dropped.reset();
  t.engine->step();
  EXPECT_EQ(t.engine->stats().pages_used, 0);
  EXPECT_EQ(t.engine->stats().running, 0);
  Answer a;
  EXPECT_TRUE(collect(*running, &a));
  EXPECT_EQ(a.finish, FinishReason::kCancelled);
}

TEST(Engine, cancel_before_the_first_step_ends_the_request) {
  TestEngine t;
  auto stream = t.submit(request({1}, 5));
  stream->cancel();
  t.drain();
  EXPECT_EQ(stream->next().finish, FinishReason::kCancelled);
}

TEST(Engine, faulted_row_ends_its_own_request_only) {
  TestEngine t;
  const Answer expected = t.run(request(prompt_of(30), 20));
  t.script->faults = [](int32_t token, int32_t position) { return token == 13 && position == 4; };
  auto good = t.submit(request(prompt_of(30), 20));
  auto bad = t.submit(request({1, 2, 3, 4, 13, 6}, 20));
  t.drain();
  Answer of_good, of_bad;
  EXPECT_TRUE(collect(*good, &of_good));
  EXPECT_TRUE(collect(*bad, &of_bad));
  EXPECT_EQ(of_good.tokens, expected.tokens);
  EXPECT_EQ(of_bad.finish, FinishReason::kError);
  EXPECT_TRUE(of_bad.tokens.empty());
  EXPECT_NE(of_bad.error.message().find("position 4"), std::string::npos);
  EXPECT_EQ(t.engine->stats().pages_used, 0);
}

TEST(Engine, logits_that_are_not_finite_end_the_request_with_an_error) {
  TestEngine t;
  t.script->nan_logits = true;
  const Answer a = t.run(request({1, 2}, 4));
  EXPECT_EQ(a.finish, FinishReason::kError);
  EXPECT_TRUE(a.tokens.empty());
}

TEST(Engine, failed_forward_fails_that_batch_and_the_engine_goes_on) {
  TestEngine t({.max_batch = 1});
  const Answer expected = t.run(request({7, 8}, 10));
  auto first = t.submit(request({1, 2}, 10));
  auto second = t.submit(request({7, 8}, 10));
  t.engine->step();
  t.script->throw_next = true;
  t.drain();
  Answer a, b;
  EXPECT_TRUE(collect(*first, &a));
  EXPECT_TRUE(collect(*second, &b));
  EXPECT_EQ(a.finish, FinishReason::kError);
  EXPECT_NE(a.error.message().find("scripted failure"), std::string::npos);
  EXPECT_EQ(b.tokens, expected.tokens);
  EXPECT_EQ(t.engine->stats().pages_used, 0);
}

TEST(Engine, refusals_name_field_and_numbers) {
  TestEngine t({.context = 64});
  const auto message = [&](GenerateRequest r) {
    const auto stream = t.engine->submit(std::move(r));
    EXPECT_FALSE(stream.ok());
    EXPECT_EQ(stream.status().code(), Code::kInvalidArgument);
    return stream.status().message();
  };
  EXPECT_EQ(message(request({}, 1)), "prompt: no tokens");
  EXPECT_EQ(message(request(prompt_of(65), 0)),
            "prompt: 65 tokens do not fit into the context of 64 tokens, set by --ctx; shorten it or raise "
            "--ctx (up to 1024)");
  EXPECT_NE(message(request(prompt_of(64), 1)).find("one more for the answer"), std::string::npos);
  EXPECT_NE(message(request({1, kFakeVocab}, 1)).find("token id 97 at position 1"), std::string::npos);
  EXPECT_NE(message(request({-1}, 1)).find("token id -1"), std::string::npos);
  EXPECT_NE(message(request({1}, -1)).find("max_tokens"), std::string::npos);
  GenerateRequest bad_sampling = request({1}, 1);
  bad_sampling.sampling.top_p = 2;
  EXPECT_NE(message(std::move(bad_sampling)).find("top_p"), std::string::npos);
  GenerateRequest no_observer = request({1}, 1);
  no_observer.all_prompt_logits = true;
  EXPECT_NE(message(std::move(no_observer)).find("on_logits"), std::string::npos);
  GenerateRequest too_urgent = request({1}, 1);
  too_urgent.priority = -101;
  EXPECT_EQ(message(std::move(too_urgent)), "priority: -101 is not between -100 and 100");
}

TEST(Engine, thread_runs_requests_and_ends_the_unfinished_as_cancelled) {
  std::shared_ptr<Stream> unfinished;
  std::vector<int32_t> expected;
  {
    TestEngine reference;
    expected = reference.run(request({1, 2, 3}, 40)).tokens;
  }
  {
    TestEngine t({}, 0, 1 << 20);
    t.engine->start();
    auto stream = t.submit(request({1, 2, 3}, 40));
    std::vector<int32_t> tokens;
    while (true) {
      const TokenEvent event = stream->next();
      if (event.token) tokens.push_back(*event.token);
      if (event.finish != FinishReason::kNone) break;
    }
    EXPECT_EQ(tokens, expected);
    unfinished = t.submit(request({4}, 1 << 19));
    EXPECT_TRUE(unfinished->next().token.has_value());
  }
  Answer a;
  EXPECT_TRUE(collect(*unfinished, &a));
  EXPECT_EQ(a.finish, FinishReason::kCancelled);
}

TEST(Engine, budgets_of_a_step_hold_and_decode_rows_come_first) {
  TestEngine t({.max_step_tokens = 20, .prefill_chunk = 8, .max_batch = 6});
  std::vector<std::shared_ptr<Stream>> streams;
  streams.push_back(t.submit(request({1, 2, 3}, 60)));
  t.engine->step();
  for (int32_t i = 0; i < 8; ++i)
    streams.push_back(t.submit(request(prompt_of(50, i), 5)));
  t.drain();
  bool mixed = false;
  int32_t decode_steps = 0;
  for (const StepRecord& step : t.trace) {
    EXPECT_EQ(step.prompt_tokens + step.decode_rows, step.tokens);
    EXPECT_LE(step.tokens, 20);
    EXPECT_LE(step.decode_rows + step.prompt_rows, 6);
    EXPECT_LE(step.prompt_tokens, 8 * step.prompt_rows);
    mixed = mixed || (step.mixed() && step.cut_prompts > 0);
    decode_steps += step.decode_rows > 0;
  }
  EXPECT_TRUE(mixed);
  EXPECT_GE(decode_steps, 59) << "the running stream got its token in every step";
}

TEST(Engine, short_prompt_does_not_wait_behind_a_long_one) {
  TestEngine t({.max_step_tokens = 128});
  auto large = t.submit(request(prompt_of(1000), 2));
  auto small = t.submit(request(prompt_of(20, 1), 2));
  t.engine->step();
  EXPECT_TRUE(small->try_next().has_value());
  EXPECT_EQ(t.trace[0].prompt_tokens, 128) << "what the short one leaves goes to the long one";
  t.drain();
}

TEST(Engine, full_queue_refuses_and_takes_again_once_there_is_room) {
  TestEngine t({.max_batch = 1, .max_queue = 2});
  auto running = t.submit(request(prompt_of(5), 3));
  auto waiting = t.submit(request(prompt_of(5), 3), 2);
  const auto refused = t.engine->submit(request(prompt_of(5), 3));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_NE(refused.status().message().find("--max-queue"), std::string::npos);
  EXPECT_EQ(t.engine->stats().live, 3);
  t.drain();
  EXPECT_TRUE(t.engine->submit(request(prompt_of(5), 3)).ok());
  t.drain();
}

TEST(Engine, more_answers_than_ever_find_a_place_are_wrong_and_not_too_early) {
  TestEngine t({.max_batch = 1, .max_queue = 2});
  const auto refused = t.engine->submit(request(prompt_of(5), 3), 4);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(refused.status().message(),
            "n: 4 answers never fit into --max-batch and --max-queue (3 together)");
  EXPECT_TRUE(t.engine->submit(request(prompt_of(5), 3), 3).ok());
  t.drain();
}

TEST(Engine, create_reports_what_does_not_fit) {
  const Graph graph = fake_graph();
  const WeightSet weights;
  const auto error = [&](EngineOptions options) {
    auto engine = Engine::create(EngineModel{&graph, &weights, 1024, 0, nullptr},
                                 std::make_unique<FakeBackend>(std::make_shared<FakeScript>()), options);
    EXPECT_FALSE(engine.ok());
    return engine.status().message();
  };
  EXPECT_NE(error({.kv = "q77"}).find("--kv q77"), std::string::npos);
  EXPECT_NE(error({.kv = "bf16"}).find("fake cannot do it"), std::string::npos);
  EXPECT_NE(error({.context = 2048}).find("--ctx 2048: the model has 1024 positions;"), std::string::npos);
  EXPECT_NE(error({.memory_bytes = 100}).find("--memory"), std::string::npos);
  EXPECT_NE(error({.context = 1024, .memory_bytes = 8192}).find("the pool may take 8.0 KiB"),
            std::string::npos);
  EXPECT_NE(error({.max_batch = 0}).find("max_batch: 0 is not between 1 and 4096"), std::string::npos);
  EXPECT_EQ(error({.max_stall_ms = -1}), "max_stall_ms: -1 is negative");
  EXPECT_EQ(error({.max_wait_s = -1}), "max_wait_s: -1 is negative");
  EXPECT_EQ(error({.prefix_cache_bytes = 4095}),
            "--prefix-cache: 4.0 KiB keep nothing, a page of 64 tokens takes 4.0 KiB; give more, or off");
  EXPECT_NE(error({.max_batch = 4097}).find("max_batch: 4097 is not between 1 and 4096"), std::string::npos);
}

TEST(Engine, prompt_beyond_the_trained_length_is_told_that_no_flag_helps) {
  TestEngine t({}, 0, 64);
  const auto stream = t.engine->submit(request(prompt_of(64), 1));
  ASSERT_FALSE(stream.ok());
  EXPECT_EQ(
      stream.status().message(),
      "prompt: 64 tokens do not fit into the context of 64 tokens with one more for the answer, which is "
      "what the model was trained for; shorten it");
}

TEST(Engine, large_batch_runs_in_one_step) {
  TestEngine t({.max_batch = 700});
  std::vector<std::shared_ptr<Stream>> streams;
  for (int32_t i = 0; i < 700; ++i)
    streams.push_back(t.submit(request({i % kFakeVocab}, 2)));
  t.drain();
  ASSERT_EQ(t.trace.size(), 2u);
  EXPECT_EQ(t.trace[0].prompt_rows, 700);
  EXPECT_EQ(t.trace[1].decode_rows, 700);
  EXPECT_EQ(t.trace[1].logit_rows, 700);
}

TEST(Engine, exception_of_an_observer_ends_its_own_request_only) {
  TestEngine t;
  const Answer expected = t.run(request({7, 8}, 10));
  GenerateRequest throwing = request({1, 2}, 10);
  throwing.on_logits = [](int32_t position, std::span<const float>) {
    if (position == 4) throw std::runtime_error("disk full");
  };
  GenerateRequest strange = request({3}, 10);
  strange.on_logits = [](int32_t, std::span<const float>) { throw 5; };
  t.engine->start();
  auto first = t.submit(std::move(throwing));
  auto second = t.submit(request({7, 8}, 10));
  auto third = t.submit(std::move(strange));
  const auto end = [](Stream& stream, Answer* answer) {
    while (true) {
      const TokenEvent event = stream.next();
      if (event.token) answer->tokens.push_back(*event.token);
      if (event.finish == FinishReason::kNone) continue;
      answer->finish = event.finish;
      answer->error = event.error;
      return;
    }
  };
  Answer a, b, c;
  end(*first, &a);
  end(*second, &b);
  end(*third, &c);
  EXPECT_EQ(a.finish, FinishReason::kError);
  EXPECT_NE(a.error.message().find("disk full"), std::string::npos);
  EXPECT_EQ(a.tokens.size(), 3u);
  EXPECT_EQ(b.tokens, expected.tokens);
  EXPECT_EQ(c.finish, FinishReason::kError);
  auto later = t.submit(request({7, 8}, 10));
  Answer d;
  end(*later, &d);
  EXPECT_EQ(d.tokens, expected.tokens);
}

TEST(Engine, preempted_work_counts_as_recomputed_and_prompts_count_once) {
  // Six pages for two sequences that grow to four each.
  TestEngine t({.context = 256, .memory_bytes = 6 * 4096, .prefix_cache_bytes = 0});
  auto first = t.submit(request(prompt_of(20), 200));
  auto second = t.submit(request(prompt_of(30, 1), 200));
  t.drain();
  int64_t preemptions = 0;  // as the requests tell it
  for (Stream* stream : {first.get(), second.get()})
    while (auto event = stream->try_next())
      if (event->finish != FinishReason::kNone) preemptions += event->preemptions;
  int64_t preempted = 0, prompt = 0, recomputed = 0, tokens = 0, decoded = 0;
  for (const StepRecord& step : t.trace) {
    preempted += step.preempted;
    prompt += step.prompt_tokens;
    recomputed += step.recomputed_tokens;
    tokens += step.tokens;
    decoded += step.decode_rows;
    EXPECT_EQ(step.recomputed_rows > 0, step.recomputed_tokens > 0);
  }
  ASSERT_GT(preempted, 0);
  EXPECT_EQ(preemptions, preempted);
  EXPECT_GT(recomputed, 64);
  EXPECT_EQ(prompt, 50);
  // The last token of an answer is never fed; the first new one after each recomputation shares its row.
  EXPECT_EQ(tokens - recomputed - prompt, 199 + 199);
  EXPECT_GE(decoded, 398 - preempted);
  EXPECT_LE(decoded, 398);
  EXPECT_EQ(t.engine->stats().prompt_tokens, 50);
  EXPECT_EQ(t.engine->stats().recomputed_tokens, recomputed);
}

}  // namespace
}  // namespace invar
