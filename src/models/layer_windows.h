#pragma once
// Which layers of a dense decoder see a sliding window of positions instead of all. Read after rotates is
// filled in; what a file says and a family has no meaning for is refused by its key.

#include "format/model_source.h"
#include "models/config.h"

namespace invar {

// What a file means where it lists no layers.
enum class WindowRule {
  kNone,             // the family has no windows
  kUpperLayers,      // use_sliding_window: those from max_window_layers on
  kUnrotatedLayers,  // use_sliding_window: those without rotary positions
  kAllLayers,        // every layer, where there is a sliding_window
  kPattern,          // all but every interval-th
};

struct WindowPattern {
  int64_t interval = 0;
  int64_t size = 0;  // where the file has none; 0: then there are no windows
};

// Fills windows, one per layer. A query at p sees the positions > p - window; 0 = all.
Status parse_windows(const ModelSource& source, WindowRule rule, ModelConfig* config,
                     const WindowPattern& pattern = {});

}  // namespace invar
