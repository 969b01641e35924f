#pragma once
// Log-probabilities of the raw distribution: the log-softmax of the logits as the model gave them, before
// penalties, temperature and filters.

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/block_highest.h"
#include "tensor/row_kernels.h"

namespace invar {

struct TokenLogprob {
  int32_t token;
  float logprob;  // natural log
};

class RawLogprobs {
 public:
  // logits: [vocab], at least one, all finite; borrowed until the next call.
  void compute(std::span<const float> logits, const RowKernels& rows);
  float of(int32_t token) const { return value(logits_[size_t(token)]); }
  // The most likely tokens, highest first, equal ones by id.
  void top(int32_t count, std::vector<TokenLogprob>* out);

 private:
  float value(float logit) const { return float(double(logit - max_) - log_sum_); }

  std::span<const float> logits_;
  float max_ = 0;
  double log_sum_ = 0;
  BlockHighest blocks_;  // scratch of top()
  std::vector<int32_t> ids_;
};

}  // namespace invar
