#include "sampling/block_highest.h"

#include <algorithm>
#include <limits>

namespace invar {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

float higher(float a, float b) {
  return a > b ? a : b;
}

}  // namespace

void BlockHighest::find(std::span<const float> x) {
  const size_t whole = x.size() / kBlock;
  highest_.assign((x.size() + kBlock - 1) / kBlock, kLowest);
  for (size_t b = 0; b < whole; ++b) {
    const float* values = x.data() + b * kBlock;
    float m[16];
    for (int l = 0; l < 16; ++l)
      m[l] = values[l];
    for (size_t k = 16; k < kBlock; k += 16)
      for (size_t l = 0; l < 16; ++l)
        m[l] = higher(values[k + l], m[l]);
    for (const int width : {8, 4, 2, 1})
      for (int l = 0; l < width; ++l)
        m[l] = higher(m[l + width], m[l]);
    highest_[b] = m[0];
  }
  for (size_t i = whole * kBlock; i < x.size(); ++i)
    highest_[whole] = higher(x[i], highest_[whole]);
}

float BlockHighest::reached_by(int32_t k) {
  if (size_t(k) > highest_.size()) return kLowest;
  order_ = highest_;
  const auto nth = order_.begin() + (k - 1);
  std::nth_element(order_.begin(), nth, order_.end(), [](float a, float b) { return a > b; });
  return *nth;
}

void BlockHighest::at_least(std::span<const float> x, float bound, std::vector<int32_t>* out) const {
  out->clear();
  for (size_t b = 0; b < highest_.size(); ++b) {
    if (highest_[b] < bound) continue;
    const size_t end = std::min(x.size(), (b + 1) * kBlock);
    for (size_t i = b * kBlock; i < end; ++i)
      if (x[i] >= bound) out->push_back(int32_t(i));
  }
}

}  // namespace invar
