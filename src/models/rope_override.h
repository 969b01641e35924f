#pragma once
// RopeOverride: rotary positions as whoever loads a model wants them instead of the file's: another base,
// or another scaling, which also says how many positions there are. Plain values, any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "models/config.h"

namespace invar {

struct RopeOverride {
  double base = 0;               // 0: the file's
  std::optional<RopeRule> rule;  // kPlain, kLinear or kYarn, in place of whatever scaling the file has
  double factor = 0;             // of kLinear and kYarn; 0: what `context` needs
  int32_t context = 0;           // positions that are wanted; 0: does not matter

  bool empty() const { return base == 0 && !rule.has_value(); }
  std::string text() const;  // equal only for equal answers; "" when empty
};

// "none", "linear", "yarn", "linear:4", "yarn:2.5".
Status parse_rope_rule(std::string_view text, RopeOverride* out);

// Changes config.rope and config.context_length. Errors name the flag.
Status apply(const RopeOverride& wanted, ModelConfig* config);

}  // namespace invar
