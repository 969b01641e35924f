#pragma once
// Rotary frequencies by the rules of docs/numerics.md section 4: fp32 steps in the order of Hugging Face's
// code, derived constants in double and rounded once, powers and logarithms by tensor/exact_math.h. Pure
// functions.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "graph/graph.h"

namespace invar {

enum class RopeRule : uint8_t { kPlain, kLinear, kLlama3, kYarn, kLongrope, kProportional };

struct RopeScaling {
  RopeRule rule = RopeRule::kPlain;
  double factor = 1;            // longrope: of the context, which the attention factor follows from
  double proportion = 1;        // proportional: of the pairs that rotate, the first ones
  double original_context = 0;  // llama3, yarn, longrope
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                              // yarn: ramp ends are whole numbers
  std::optional<double> attention_factor;            // yarn, longrope
  std::optional<double> mscale, mscale_all_dim;      // yarn
  std::vector<float> short_factor,
      long_factor;  // longrope: [dim/2], of prompts up to original_context and beyond
};

// What a file says of its rope.
struct RopeRecipe {
  double theta;
  int32_t dim;
  RopeScaling scaling = {};
  std::vector<float> divisors = {};
};

// theta > 1; dim even. divisors [dim/2] divide the frequencies (rope_freqs of GGUF files); empty: none. From
// 1e30 on they stand for pairs that do not rotate.
// kInvalidArgument names a parameter that is out of range.
Result<Rope> make_rope(double theta, int32_t dim, const RopeScaling& scaling,
                       std::span<const float> divisors = {});
inline Result<Rope> make_rope(const RopeRecipe& recipe) {
  return make_rope(recipe.theta, recipe.dim, recipe.scaling, recipe.divisors);
}

}  // namespace invar
