#include "text/byte_matcher.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace invar::text {
namespace {

TEST(ByteMatcher, every_position_knows_its_longest_pattern_and_its_hold_back) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const int letters = 1 + static_cast<int>(random() % 3);
    const auto word = [&](size_t longest) {
      std::string s(1 + random() % longest, 'a');
      for (char& c : s)
        c = static_cast<char>('a' + random() % letters);
      return s;
    };
    std::vector<std::string> patterns;
    for (size_t i = 0, n = 1 + random() % 20; i < n; ++i)
      patterns.push_back(word(6));
    const std::vector<std::string_view> views(patterns.begin(), patterns.end());
    const ByteMatcher matcher(views);
    const std::string text = word(60);
    ByteMatcher::State state = ByteMatcher::kStart;
    for (size_t end = 1; end <= text.size(); ++end) {
      state = matcher.next(state, static_cast<uint8_t>(text[end - 1]));
      const std::string_view seen = std::string_view(text).substr(0, end);
      std::string_view longest, held;
      for (const std::string_view p : views) {
        if (seen.ends_with(p) && p.size() > longest.size()) longest = p;
        for (size_t n = held.size() + 1; n <= p.size(); ++n)
          if (seen.ends_with(p.substr(0, n))) held = p.substr(0, n);
      }
      ASSERT_EQ(matcher.depth(state), held.size());
      const int32_t match = matcher.match(state);
      ASSERT_EQ(match < 0 ? std::string_view() : views[static_cast<size_t>(match)], longest);
      ASSERT_EQ(matcher.spelled(state) >= 0, !longest.empty() && longest == held);
    }
  }
}

TEST(ByteMatcher, equal_patterns_count_as_the_first) {
  const std::string_view patterns[] = {"xy", "ab", "ab", "xy"};
  const ByteMatcher matcher(patterns);
  auto state = matcher.next(matcher.next(ByteMatcher::kStart, 'a'), 'b');
  EXPECT_EQ(matcher.match(state), 1);
  state = matcher.next(matcher.next(state, 'x'), 'y');
  EXPECT_EQ(matcher.match(state), 0);
}

TEST(ByteMatcher, without_patterns_nothing_matches) {
  const ByteMatcher matcher({});
  EXPECT_EQ(matcher.next(ByteMatcher::kStart, 'a'), ByteMatcher::kStart);
  EXPECT_EQ(matcher.match(ByteMatcher::kStart), -1);
  EXPECT_EQ(matcher.child(ByteMatcher::kStart, 'a'), ByteMatcher::kNone);
}

TEST(ByteMatcher, the_trie_ends_where_no_pattern_goes_on) {
  const std::string_view patterns[] = {"ab", "abcd", "b"};
  const ByteMatcher matcher(patterns);
  auto at = matcher.child(ByteMatcher::kStart, 'a');
  ASSERT_NE(at, ByteMatcher::kNone);
  EXPECT_EQ(matcher.spelled(at), -1);
  at = matcher.child(at, 'b');
  EXPECT_EQ(matcher.spelled(at), 0);
  at = matcher.child(at, 'c');
  EXPECT_EQ(matcher.spelled(at), -1);  // "b" ended a byte before
  EXPECT_EQ(matcher.child(at, 'b'), ByteMatcher::kNone);
  EXPECT_EQ(matcher.longest(), 4u);
}

}  // namespace
}  // namespace invar::text
