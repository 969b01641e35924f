#pragma once
// ScoreWindows: how a long text is cut so that a model with a short context can score each of its tokens
// once. A window is the tokenizer's prefix followed by a piece of the text; each further one ends `stride`
// tokens later and scores only those. Plain values.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace invar {

struct WindowShape {
  int32_t window = 0;  // tokens that a model sees at once, the prefix among them
  int32_t stride = 0;  // tokens by which windows move on, at least 1
};

struct ScoreWindow {
  std::vector<int32_t> ids;
  int32_t first_scored = 0;  // index in ids, at least 1: a token without one before it has no score
};

// The shape from what was asked for (0 = not given) and the positions of a sequence. By default 512 tokens,
// or as many as fit, and a stride of half of them. Errors name --window and --stride.
Result<WindowShape> window_shape(int32_t window, int32_t stride, int32_t context, int32_t prefix_tokens);

// `shape` is one that window_shape() gave for that prefix.
std::vector<ScoreWindow> score_windows(std::span<const int32_t> text, std::span<const int32_t> prefix,
                                       WindowShape shape);

// Of all windows.
int64_t scored_tokens(std::span<const ScoreWindow> windows);

}  // namespace invar
