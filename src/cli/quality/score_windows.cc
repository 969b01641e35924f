#include "cli/quality/score_windows.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace invar {

constexpr int32_t kDefaultWindow = 512;

Result<WindowShape> window_shape(int32_t window, int32_t stride, int32_t context, int32_t prefix_tokens) {
  if (window == 0) window = std::min(kDefaultWindow, context);
  if (window > context)
    return invalid_argument(
        fmt::format("--window {}: the context has {} positions; give at most as many", window, context));
  // One token to score, and where there is no prefix one before it.
  const int32_t body = window - prefix_tokens, least = prefix_tokens > 0 ? 1 : 2;
  if (body < least)
    return invalid_argument(
        fmt::format("--window {}: must hold the {} tokens of the tokenizer's prefix and "
                    "{} of the text; give at least {}",
                    window, prefix_tokens, least, prefix_tokens + least));
  if (stride == 0) stride = std::max(body / 2, 1);
  if (stride > body)
    return invalid_argument(
        fmt::format("--stride {}: a window holds {} tokens of the text; give at most as many", stride, body));
  return WindowShape{window, stride};
}

std::vector<ScoreWindow> score_windows(std::span<const int32_t> text, std::span<const int32_t> prefix,
                                       WindowShape shape) {
  const size_t head = prefix.size(), body = size_t(shape.window) - head;
  CHECK(shape.stride > 0 && shape.window > int32_t(head) && size_t(shape.stride) <= body);
  std::vector<ScoreWindow> windows;
  size_t scored = 0;  // tokens of the text that have been
  for (size_t end = std::min(text.size(), body); scored < text.size();
       end = std::min(text.size(), end + size_t(shape.stride))) {
    const size_t begin = end > body ? end - body : 0;
    const size_t first = std::max(scored, head > 0 ? begin : begin + 1);
    scored = end;
    if (first >= end) continue;  // a single token without a prefix
    ScoreWindow& w = windows.emplace_back();
    w.ids.assign(prefix.begin(), prefix.end());
    w.ids.insert(w.ids.end(), text.begin() + ptrdiff_t(begin), text.begin() + ptrdiff_t(end));
    w.first_scored = int32_t(head + first - begin);
  }
  return windows;
}

int64_t scored_tokens(std::span<const ScoreWindow> windows) {
  int64_t n = 0;
  for (const ScoreWindow& w : windows)
    n += int64_t(w.ids.size()) - w.first_scored;
  return n;
}

}  // namespace invar
