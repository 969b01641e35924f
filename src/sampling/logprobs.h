#pragma once
// Log-probabilities of the raw distribution: the log-softmax of the logits as the model gave them, before
// penalties, temperature and filters.

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/row_kernels.h"

namespace invar {

struct TokenLogprob {
  int32_t token;
  float logprob;  // natural log
};

class RawLogprobs {
 public:
  // logits [vocab], at least one, all finite.
  void compute(std::span<const float> logits, const RowKernels& rows);
  float of(int32_t token) const { return values_[token]; }
  // The most likely tokens, highest first, equal ones by id.
  void top(int32_t count, std::vector<TokenLogprob>* out);

 private:
  std::vector<float> values_;   // [vocab]
  std::vector<int32_t> order_;  // scratch of top()
};

}  // namespace invar
