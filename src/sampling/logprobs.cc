#include "sampling/logprobs.h"

#include <algorithm>

#include "tensor/exact_math.h"

namespace invar {

void RawLogprobs::compute(std::span<const float> logits, const RowKernels& rows) {
  const int64_t n = int64_t(logits.size());
  logits_ = logits;
  max_ = logits[size_t(rows.argmax(logits.data(), n))];
  log_sum_ = log64(double(rows.exp_sum(logits.data(), n, max_, nullptr)));
}

void RawLogprobs::top(int32_t count, std::vector<TokenLogprob>* out) {
  out->clear();
  const size_t n = std::min(size_t(count), logits_.size());
  if (n == 0) return;
  blocks_.find(logits_);
  const float bound = blocks_.reached_by(int32_t(n));
  // Logits a little apart may round to one log-probability, and then the lower id goes first.
  const float rounding = (abs_f32(bound - max_) + float(log_sum_) + 1) * 0x1p-20f;
  blocks_.at_least(logits_, bound - rounding, &ids_);
  const auto before = [&](int32_t a, int32_t b) { return of(a) != of(b) ? of(a) > of(b) : a < b; };
  std::nth_element(ids_.begin(), ids_.begin() + ptrdiff_t(n - 1), ids_.end(), before);
  std::sort(ids_.begin(), ids_.begin() + ptrdiff_t(n), before);
  for (size_t i = 0; i < n; ++i)
    out->push_back({ids_[i], of(ids_[i])});
}

}  // namespace invar
