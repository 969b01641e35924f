#pragma once
// PromptScorer: log-probabilities of tokens that are known already, bit for bit what the sampler says of a
// token it chose from the same logits. Keeps scratch only. One per engine, engine thread only.

#include <cstdint>
#include <span>

#include "base/status.h"
#include "engine/stream.h"
#include "sampling/logprobs.h"
#include "tensor/row_kernels.h"

namespace invar {

class PromptScorer {
 public:
  explicit PromptScorer(const RowKernels& rows) : rows_(rows) {}  // borrowed

  // The event of a prompt's token. logits: [vocab], of the position before it. kInternal when one of them is
  // NaN or infinite.
  Result<TokenEvent> score(std::span<const float> logits, int32_t token, int32_t alternatives);

 private:
  const RowKernels& rows_;
  RawLogprobs logprobs_;
};

}  // namespace invar
