#pragma once
// Which layers of a dense decoder see a sliding window of positions instead of all. Read after rotates is
// filled in; what a file says and a family has no meaning for is refused by its key.

#include "format/model_source.h"
#include "models/config.h"

namespace invar {

// What config.json means where it has no layer_types.
enum class WindowRule {
  kNone,             // the family has no windows
  kUpperLayers,      // use_sliding_window: those from max_window_layers on
  kUnrotatedLayers,  // use_sliding_window: those without rotary positions
};

// Fills windows, one per layer. A query at p sees the positions > p - window; 0 = all.
Status parse_windows(const ModelSource& source, WindowRule rule, ModelConfig* config);

}  // namespace invar
