#include "sampling/logprobs.h"

#include <algorithm>
#include <numeric>

#include "tensor/exact_math.h"

namespace invar {

void RawLogprobs::compute(std::span<const float> logits, const RowKernels& rows) {
  const int64_t n = int64_t(logits.size());
  values_.resize(logits.size());
  const float max = logits[rows.argmax(logits.data(), n)];
  const double log_sum = log64(double(rows.exp_sum(logits.data(), n, max, nullptr)));
  for (size_t i = 0; i < logits.size(); ++i)
    values_[i] = float(double(logits[i] - max) - log_sum);
}

void RawLogprobs::top(int32_t count, std::vector<TokenLogprob>* out) {
  out->clear();
  const size_t n = std::min(size_t(count), values_.size());
  if (n == 0) return;
  order_.resize(values_.size());
  std::iota(order_.begin(), order_.end(), 0);
  const auto before = [&](int32_t a, int32_t b) {
    return values_[a] != values_[b] ? values_[a] > values_[b] : a < b;
  };
  std::nth_element(order_.begin(), order_.begin() + (n - 1), order_.end(), before);
  std::sort(order_.begin(), order_.begin() + n, before);
  out->reserve(n);
  for (size_t i = 0; i < n; ++i)
    out->push_back({order_[i], values_[order_[i]]});
}

}  // namespace invar
