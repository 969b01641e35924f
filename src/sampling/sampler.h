#pragma once
// Sampler: from a row of logits to a token. Stateless: what it keeps is scratch. One per thread that samples.
// The chain: mask, penalties, bias, temperature, filters (processors.cc), or in the order of the request,
// then the argmax of x + Gumbel noise.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "sampling/candidates.h"
#include "sampling/logprobs.h"
#include "sampling/mirostat.h"
#include "sampling/params.h"
#include "sampling/token_counts.h"
#include "tensor/noise.h"
#include "tensor/row_kernels.h"

namespace invar {

struct SampleInput {
  std::span<const float> logits;  // [vocab], as the model gave them
  const SamplingParams& params;
  const TokenCounts& counts;       // read by penalties only
  std::span<const uint32_t> mask;  // from a guard: a bit per token id, 1 = allowed; empty = all allowed
  int32_t position;                // absolute, of the token being chosen
  std::span<const int32_t> history = {};  // the tokens before it; read by DRY
  std::span<const int32_t> not_yet = {};  // ids that would end an answer shorter than min_tokens
  double mirostat_mu = 0;                 // of the sequence (mirostat.h)
};

struct Choice {
  int32_t token = -1;
  float logprob = 0;                       // raw; set when params.logprobs >= 0
  std::vector<TokenLogprob> alternatives;  // params.logprobs of them
  double mirostat_mu = 0;                  // after this choice
};

class Sampler {
 public:
  explicit Sampler(const RowKernels& rows) : rows_(rows), candidates_(rows) {}  // borrowed

  // kInternal when a logit is NaN or infinite; kInvalidArgument when nothing is allowed.
  Result<Choice> choose(const SampleInput& in);
  // The logits as the chain leaves them, -infinity where excluded; valid until the next call. They are
  // in.logits where the chain changes nothing.
  std::span<const float> process(const SampleInput& in);

 private:
  void run_chain(const SampleInput& in);
  double next_mu(const SampleInput& in, int32_t token) const;

  const RowKernels& rows_;
  Candidates candidates_;
  Softmax before_mirostat_{};
  RawLogprobs logprobs_;
};

// The lowest index of the highest x[i] + Gumbel noise of token i; -infinity never wins. It starts
// at index `first`, where x is finite; the sooner a high sum is met, the fewer others need their noise.
int32_t gumbel_argmax(std::span<const float> x, int32_t first, const NoiseKey& key, const RowKernels& rows);
// The same over some ids, ascending.
int32_t gumbel_argmax(std::span<const float> x, std::span<const int32_t> ids, int32_t first,
                      const NoiseKey& key);

}  // namespace invar
