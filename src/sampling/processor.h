#pragma once
// Processor: one link of the sampling chain. A file in processors/ and a line in processors.cc, whose order
// is the chain's order. Each sees what the ones before left and changes it in place; none keeps state.

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "sampling/params.h"
#include "sampling/token_counts.h"
#include "tensor/row_kernels.h"

namespace invar {

inline constexpr float kExcluded = -std::numeric_limits<float>::infinity();

// What a value becomes that leaves the range of fp32: it stays a candidate.
inline float bounded(float x) {
  constexpr float kMax = std::numeric_limits<float>::max();
  return x > kMax ? kMax : x < -kMax ? -kMax : x;
}

struct Candidates {
  std::span<float> x;           // [vocab] logits so far; kExcluded = cannot be chosen
  std::vector<float>* weights;  // scratch: [vocab] of exp(x - max)
  std::vector<int32_t>* order;  // scratch: token ids
};

struct ProcessorInput {
  const SamplingParams& params;
  const TokenCounts& counts;
  std::span<const uint32_t> mask;  // a bit per token id, 1 = allowed; empty = all
  const RowKernels& rows;
};

struct Processor {
  const char* name;
  bool (*active)(const ProcessorInput& in);
  void (*apply)(const ProcessorInput& in, Candidates& candidates);
};

std::span<const Processor> processors();

}  // namespace invar
