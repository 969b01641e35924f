#include "sampling/candidates.h"

#include <algorithm>

#include "tensor/exact_math.h"

namespace invar {

void Candidates::reset(std::span<const float> logits) {
  x_ = logits;
  listed_ = false;
  changed();
}

void Candidates::changed() {
  blocks_.forget();
  likeliest_.reset();
  likely_.reset();
  softmax_.reset();
}

std::span<float> Candidates::values() {
  changed();
  if (x_.data() != own_.data()) {
    own_.assign(x_.begin(), x_.end());
    x_ = own_;
  }
  return own_;
}

void Candidates::exclude(int32_t id) {
  if (!listed_) {
    values()[size_t(id)] = kExcluded;
    return;
  }
  changed();
  const auto at = std::lower_bound(ids_.begin(), ids_.end(), id);
  if (at != ids_.end() && *at == id) ids_.erase(at);
}

void Candidates::divide(float divisor) {
  if (listed_) {
    const std::span<float> x = values();
    for (const int32_t id : ids_)
      x[size_t(id)] = bounded(x[size_t(id)] / divisor);
    return;
  }
  const std::optional<int32_t> before = likeliest_;
  changed();
  likely_ = before;
  own_.resize(x_.size());
  rows_.divide(x_.data(), int64_t(x_.size()), divisor, own_.data());
  x_ = own_;
}

void Candidates::keep(std::vector<int32_t>& ids) {
  std::sort(ids.begin(), ids.end());
  ids_.swap(ids);
  listed_ = true;
  changed();
}

int32_t Candidates::count() const {
  if (listed_) return int32_t(ids_.size());
  int32_t count = 0;  // of 32 bits, for the vectorizer
  for (const float x : x_)
    count += x != kExcluded;
  return count;
}

int32_t Candidates::likeliest() {
  if (!likeliest_) likeliest_ = find_likeliest();
  return *likeliest_;
}

int32_t Candidates::likely() {
  return likely_ ? *likely_ : likeliest();
}

int32_t Candidates::find_likeliest() const {
  if (!listed_) {
    const auto best = int32_t(rows_.argmax(x_.data(), int64_t(x_.size())));
    return x_.empty() || x_[size_t(best)] == kExcluded ? -1 : best;
  }
  int32_t best = -1;
  for (const int32_t id : ids_)
    if (best < 0 || x_[size_t(id)] > x_[size_t(best)]) best = id;
  return best;
}

BlockHighest& Candidates::blocks() {
  if (!blocks_.known()) blocks_.find(x_);
  return blocks_;
}

void Candidates::at_least(float bound, std::vector<int32_t>* out) {
  bound = std::max(bound, -std::numeric_limits<float>::max());
  if (!listed_) return blocks().at_least(x_, bound, out);
  out->clear();
  for (const int32_t id : ids_)
    if (x_[size_t(id)] >= bound) out->push_back(id);
}

void Candidates::highest(int32_t k, std::vector<int32_t>* out) {
  at_least(listed_ ? kExcluded : blocks().reached_by(k), out);
  if (out->size() <= size_t(k)) return;
  std::nth_element(out->begin(), out->begin() + k, out->end(), [this](int32_t a, int32_t b) {
    return x_[size_t(a)] != x_[size_t(b)] ? x_[size_t(a)] > x_[size_t(b)] : a < b;
  });
  out->resize(size_t(k));
}

const Softmax& Candidates::softmax() {
  if (!softmax_) {
    const float max = x_[size_t(likeliest())];
    softmax_ = {
        max, listed_ ? weight_sums(max).weights : rows_.exp_sum(x_.data(), int64_t(x_.size()), max, nullptr)};
  }
  return *softmax_;
}

double Candidates::mean_distance() {
  const float max = x_[size_t(likeliest())];
  const WeightSums sums = weight_sums(max);
  softmax_ = {max, sums.weights};
  return sums.distances / double(sums.weights);
}

WeightSums Candidates::weight_sums(float max) const {
  if (!listed_) return rows_.weight_sums(x_.data(), int64_t(x_.size()), max);
  LaneSum<float> weights;
  LaneSum<double> distances;
  for (const int32_t id : ids_) {
    const float distance = x_[size_t(id)] - max, weight = exp_or_zero_f32(distance);
    weights.add(id, weight);
    if (distance != kExcluded) distances.add(id, double(weight) * double(distance));
  }
  return {weights.total(), distances.total()};
}

float Candidates::probability(int32_t id, const Softmax& s) const {
  return exp_or_zero_f32(x_[size_t(id)] - s.max) / s.sum;
}

double Candidates::sum() const {
  if (!listed_) return rows_.sum(x_.data(), int64_t(x_.size()));
  LaneSum<double> sum;
  for (const int32_t id : ids_)
    sum.add(id, double(x_[size_t(id)]));
  return sum.total();
}

double Candidates::square_sum(double mean) const {
  if (!listed_) return rows_.square_sum(x_.data(), int64_t(x_.size()), mean);
  LaneSum<double> sum;
  for (const int32_t id : ids_) {
    const double d = double(x_[size_t(id)]) - mean;
    sum.add(id, d * d);
  }
  return sum.total();
}

std::span<const float> Candidates::resolved() {
  if (!listed_) return x_;
  const std::span<float> x = values();
  size_t next = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (next < ids_.size() && size_t(ids_[next]) == i)
      ++next;
    else
      x[i] = kExcluded;
  }
  return x;
}

}  // namespace invar
