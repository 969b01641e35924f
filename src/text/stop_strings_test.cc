#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include "text/stream_fixtures.h"

namespace invar::text {
namespace {

std::shared_ptr<const StopStrings> compiled(const std::vector<std::string>& strings) {
  auto stops = StopStrings::compile(strings);
  EXPECT_TRUE(stops.ok()) << stops.status().message();
  return *stops;
}

// The number of tokens the guard lets through, the last one included; -1: it never stops.
int tokens_until_stop(Guard& guard, std::span<const int32_t> ids) {
  for (size_t i = 0; i < ids.size(); ++i) {
    const Verdict verdict = guard.accept(ids[i]);
    EXPECT_TRUE(verdict.forced.empty());
    if (verdict.action == Verdict::Action::kStop) return static_cast<int>(i) + 1;
    EXPECT_EQ(verdict.action, Verdict::Action::kContinue);
  }
  return -1;
}

int tokens_until_stop(const std::vector<std::string>& pieces, const std::vector<std::string>& stops,
                      const std::vector<int32_t>& ids) {
  const auto guard = make_stop_guard(compiled(stops), byte_level_tokenizer(pieces), {});
  return tokens_until_stop(*guard, ids);
}

TEST(StopGuard, the_token_that_completes_a_string_is_the_last) {
  const std::vector<std::string> pieces = {"abc", "END", "xENDy", "EN", "D!"};
  EXPECT_EQ(tokens_until_stop(pieces, {"END"}, {256, 257, 256}), 2);       // a token of its own
  EXPECT_EQ(tokens_until_stop(pieces, {"END"}, {256, 258, 256}), 2);       // inside a token
  EXPECT_EQ(tokens_until_stop(pieces, {"END"}, {256, 259, 260, 256}), 3);  // over two tokens
  EXPECT_EQ(tokens_until_stop(pieces, {"END"}, {259, 256, 260}), -1);
  EXPECT_EQ(tokens_until_stop(pieces, {"c", "END"}, {257, 256}), 1);
  EXPECT_EQ(tokens_until_stop(pieces, {"E"}, {256, 259}), 2);
}

TEST(StopGuard, a_string_before_min_tokens_is_text) {
  const auto tokenizer = byte_level_tokenizer({"abc", "END", "EN", "D!"});
  const auto until = [&](int32_t min_tokens, const std::vector<int32_t>& ids) {
    return tokens_until_stop(*make_stop_guard(compiled({"END"}), tokenizer, {}, min_tokens), ids);
  };
  EXPECT_EQ(until(2, {256, 257, 256, 257}), 2);
  EXPECT_EQ(until(3, {256, 257, 256, 257}), 4);
  EXPECT_EQ(until(3, {256, 258, 259}), 3) << "it may begin before";
  EXPECT_EQ(until(5, {256, 257, 256, 257}), -1);
}

TEST(StopGuard, hidden_control_tokens_do_not_break_a_string) {
  EXPECT_EQ(tokens_until_stop({"EN", "D!"}, {"END"}, {256, 258, 257}), 3);
}

TEST(StopGuard, stops_at_the_token_whose_text_first_holds_a_string) {
  std::mt19937 random(11);
  const std::vector<StreamWorld> worlds = random_worlds(random);
  int stopped = 0;
  for (int round = 0; round < 600; ++round) {
    const StreamCase c = random_case(random, worlds[static_cast<size_t>(round) % worlds.size()]);
    if (c.stops.empty()) continue;
    int expected = -1;
    Detokenizer detokenizer(c.tokenizer, {});
    std::string text;
    for (size_t i = 0; i < c.ids.size() && expected < 0; ++i) {
      detokenizer.push(c.ids[i], text);
      if (cut_at_stop(text, c.stops).stop >= 0) expected = static_cast<int>(i) + 1;
    }
    const auto guard = make_stop_guard(compiled(c.stops), c.tokenizer, {});
    ASSERT_EQ(tokens_until_stop(*guard, c.ids), expected) << round;
    stopped += expected >= 0;
  }
  EXPECT_GT(stopped, 150);
}

TEST(StopGuard, a_fork_goes_on_from_the_same_place_on_its_own) {
  const auto guard = make_stop_guard(compiled({"END"}), byte_level_tokenizer({}), {});
  guard->accept('E');
  guard->accept('N');
  const auto fork = guard->clone();
  EXPECT_EQ(guard->accept('x').action, Verdict::Action::kContinue);
  EXPECT_EQ(fork->accept('D').action, Verdict::Action::kStop);
  EXPECT_EQ(guard->accept('D').action, Verdict::Action::kContinue);
  uint32_t words[8] = {};
  EXPECT_FALSE(guard->mask(words));
}

TEST(StopStrings, ten_thousand_strings_are_one_pass) {
  std::vector<std::string> strings;
  for (int i = 0; i < 10000; ++i)
    strings.push_back(fmt::format("stop-{:05}", i));
  const auto stops = compiled(strings);
  const auto guard = make_stop_guard(stops, byte_level_tokenizer({"stop-", "07", "stop-0"}), {});
  EXPECT_EQ(tokens_until_stop(*guard, std::vector<int32_t>{256, '0', 258, 257, '1', '2', '3'}), 6);
}

TEST(StopStrings, what_cannot_be_a_stop_string_is_named) {
  const auto message = [](std::vector<std::string> strings) {
    auto stops = StopStrings::compile(strings);
    EXPECT_FALSE(stops.ok());
    EXPECT_EQ(stops.status().code(), Code::kInvalidArgument);
    return stops.status().message();
  };
  EXPECT_EQ(message({"a", ""}), "stop[1] is an empty string");
  EXPECT_EQ(message({"\xff"}), "stop[0] is not UTF-8");
  EXPECT_NE(message({std::string(StopStrings::kMaxBytes, 'a'), "b"}).find("262144 bytes"), std::string::npos);
  EXPECT_TRUE(StopStrings::compile(std::vector<std::string>{std::string(StopStrings::kMaxBytes, 'a')}).ok());
  EXPECT_EQ(compiled({}), nullptr);
}

}  // namespace
}  // namespace invar::text
