#include "sampling/candidates.h"

#include <algorithm>

#include "tensor/exact_math.h"

namespace invar {

void Candidates::reset(std::span<const float> logits) {
  x_.assign(logits.begin(), logits.end());
  listed_ = false;
  block_highest_.clear();
}

std::span<float> Candidates::values() {
  block_highest_.clear();
  return x_;
}

void Candidates::exclude(int32_t id) {
  x_[size_t(id)] = kExcluded;
  if (listed_) {
    const auto at = std::lower_bound(ids_.begin(), ids_.end(), id);
    if (at != ids_.end() && *at == id) ids_.erase(at);
  } else {
    block_highest_.clear();
  }
}

void Candidates::keep(std::vector<int32_t>& ids) {
  std::sort(ids.begin(), ids.end());
  ids_.swap(ids);
  listed_ = true;
}

int32_t Candidates::count() const {
  if (listed_) return int32_t(ids_.size());
  return int32_t(std::count_if(x_.begin(), x_.end(), [](float x) { return x != kExcluded; }));
}

int32_t Candidates::likeliest() {
  if (!listed_) {
    const auto best = int32_t(rows_.argmax(x_.data(), int64_t(x_.size())));
    return x_.empty() || x_[size_t(best)] == kExcluded ? -1 : best;
  }
  int32_t best = -1;
  for (const int32_t id : ids_)
    if (best < 0 || x_[size_t(id)] > x_[size_t(best)]) best = id;
  return best;
}

void Candidates::find_block_highest() {
  if (!block_highest_.empty()) return;
  const size_t n = x_.size(), whole = n / kBlock;
  block_highest_.assign((n + kBlock - 1) / kBlock, kExcluded);
  for (size_t b = 0; b < whole; ++b) {
    const float* x = x_.data() + b * kBlock;
    float m[16];
    for (int l = 0; l < 16; ++l)
      m[l] = x[l];
    for (int k = 16; k < kBlock; k += 16)
      for (int l = 0; l < 16; ++l)
        m[l] = x[k + l] > m[l] ? x[k + l] : m[l];
    for (const int width : {8, 4, 2, 1})
      for (int l = 0; l < width; ++l)
        m[l] = m[l + width] > m[l] ? m[l + width] : m[l];
    block_highest_[b] = m[0];
  }
  for (size_t i = whole * kBlock; i < n; ++i)
    block_highest_[whole] = std::max(block_highest_[whole], x_[i]);
}

void Candidates::at_least(float bound, std::vector<int32_t>* out) {
  out->clear();
  bound = std::max(bound, -std::numeric_limits<float>::max());
  if (listed_) {
    for (const int32_t id : ids_)
      if (x_[size_t(id)] >= bound) out->push_back(id);
    return;
  }
  find_block_highest();
  for (size_t b = 0; b < block_highest_.size(); ++b) {
    if (block_highest_[b] < bound) continue;
    const size_t end = std::min(x_.size(), (b + 1) * kBlock);
    for (size_t i = b * kBlock; i < end; ++i)
      if (x_[i] >= bound) out->push_back(int32_t(i));
  }
}

// k blocks whose highest value is at least b hold k values of at least b, so nothing below b can be wanted.
void Candidates::highest(int32_t k, std::vector<int32_t>* out) {
  float bound = kExcluded;
  if (!listed_) {
    find_block_highest();
    if (size_t(k) <= block_highest_.size()) {
      block_order_ = block_highest_;
      std::nth_element(block_order_.begin(), block_order_.begin() + (k - 1), block_order_.end(),
                       [](float a, float b) { return a > b; });
      bound = block_order_[size_t(k - 1)];
    }
  }
  at_least(bound, out);
  if (out->size() <= size_t(k)) return;
  std::nth_element(out->begin(), out->begin() + k, out->end(), [this](int32_t a, int32_t b) {
    return x_[size_t(a)] != x_[size_t(b)] ? x_[size_t(a)] > x_[size_t(b)] : a < b;
  });
  out->resize(size_t(k));
}

Softmax Candidates::softmax() {
  Softmax s{x_[size_t(likeliest())], 0};
  if (!listed_) {
    s.sum = rows_.exp_sum(x_.data(), int64_t(x_.size()), s.max, nullptr);
    return s;
  }
  LaneSum<float> sum;
  for (const int32_t id : ids_)
    sum.add(id, exp_or_zero_f32(x_[size_t(id)] - s.max));
  s.sum = sum.total();
  return s;
}

float Candidates::probability(int32_t id, const Softmax& s) const {
  return exp_or_zero_f32(x_[size_t(id)] - s.max) / s.sum;
}

double Candidates::mean_distance(const Softmax& s) {
  LaneSum<double> sum;
  // A weight of 0 adds nothing: the distance may be infinite there.
  const auto term = [&s](float weight, float distance) {
    return weight > 0 ? double(weight / s.sum) * double(distance) : 0.0;
  };
  if (listed_) {
    for (const int32_t id : ids_) {
      const float distance = x_[size_t(id)] - s.max;
      sum.add(id, term(exp_or_zero_f32(distance), distance));
    }
    return sum.total();
  }
  scratch.resize(x_.size());
  rows_.exp_sum(x_.data(), int64_t(x_.size()), s.max, scratch.data());
  const size_t whole = x_.size() / 16 * 16;
  for (size_t i = 0; i < whole; i += 16)
    for (size_t l = 0; l < 16; ++l)
      sum.lanes()[l] = sum.lanes()[l] + term(scratch[i + l], x_[i + l] - s.max);
  for (size_t i = whole; i < x_.size(); ++i)
    sum.add(int32_t(i), term(scratch[i], x_[i] - s.max));
  return sum.total();
}

std::span<const float> Candidates::resolved() {
  if (listed_) {
    size_t next = 0;
    for (size_t i = 0; i < x_.size(); ++i) {
      if (next < ids_.size() && size_t(ids_[next]) == i)
        ++next;
      else
        x_[i] = kExcluded;
    }
  }
  return x_;
}

}  // namespace invar
