#include "cli/quality/score_windows.h"

#include <gtest/gtest.h>

#include <numeric>

namespace invar {
namespace {

std::vector<int32_t> tokens(int32_t n) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  std::iota(ids.begin(), ids.end(), 100);
  return ids;
}

TEST(ScoreWindows, every_token_but_a_first_one_without_prefix_is_scored_once_and_in_order) {
  for (const int32_t head : {0, 1, 2}) {
    for (int32_t n = 0; n <= 40; ++n) {
      for (int32_t window = head + 2; window <= 12; ++window) {
        for (int32_t stride = 1; stride <= window - head; ++stride) {
          const std::vector<int32_t> text = tokens(n), prefix(size_t(head), 7);
          std::vector<int32_t> scored;
          for (const ScoreWindow& w : score_windows(text, prefix, {window, stride})) {
            ASSERT_LE(w.ids.size(), size_t(window));
            ASSERT_GE(w.first_scored, 1);
            ASSERT_TRUE(std::equal(prefix.begin(), prefix.end(), w.ids.begin()));
            for (size_t i = size_t(head) + 1; i < w.ids.size(); ++i)
              ASSERT_EQ(w.ids[i], w.ids[i - 1] + 1);  // a piece of the text as it is
            scored.insert(scored.end(), w.ids.begin() + w.first_scored, w.ids.end());
          }
          std::vector<int32_t> expected = text;
          if (head == 0 && n > 0) expected.erase(expected.begin());
          // A window that moves on by its whole length has nothing before its first token.
          if (head == 0 && stride == window) {
            for (int32_t at = window; at + window <= n; at += window)
              expected.erase(std::find(expected.begin(), expected.end(), 100 + at));
          }
          ASSERT_EQ(scored, expected) << head << " " << n << " " << window << " " << stride;
        }
      }
    }
  }
}

TEST(ScoreWindows, a_later_window_keeps_as_much_before_its_tokens_as_fits) {
  const auto windows = score_windows(tokens(10), std::vector<int32_t>{7}, {5, 2});
  ASSERT_EQ(windows.size(), 4u);
  EXPECT_EQ(windows[0].ids, (std::vector<int32_t>{7, 100, 101, 102, 103}));
  EXPECT_EQ(windows[0].first_scored, 1);
  EXPECT_EQ(windows[1].ids, (std::vector<int32_t>{7, 102, 103, 104, 105}));
  EXPECT_EQ(windows[1].first_scored, 3);
  EXPECT_EQ(windows[3].ids, (std::vector<int32_t>{7, 106, 107, 108, 109}));
  EXPECT_EQ(scored_tokens(windows), 10);
}

TEST(ScoreWindows, the_shape_follows_from_context_and_prefix) {
  EXPECT_EQ(window_shape(0, 0, 8192, 1)->window, 512);
  EXPECT_EQ(window_shape(0, 0, 8192, 1)->stride, 255);
  EXPECT_EQ(window_shape(0, 0, 64, 0)->window, 64);
  EXPECT_EQ(window_shape(100, 100, 8192, 0)->stride, 100);
  EXPECT_NE(window_shape(65, 0, 64, 0).status().message().find("--window 65"), std::string::npos);
  EXPECT_NE(window_shape(2, 0, 64, 2).status().message().find("at least 3"), std::string::npos);
  EXPECT_NE(window_shape(16, 16, 64, 1).status().message().find("--stride 16"), std::string::npos);
}

}  // namespace
}  // namespace invar
