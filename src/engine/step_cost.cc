#include "engine/step_cost.h"

#include <algorithm>
#include <cmath>

namespace invar {
namespace {

constexpr double kMemory = 0.95;  // what a step still counts when the next one has come
constexpr int kSweeps = 8;        // of coordinate descent, from the prices before: close enough
constexpr int32_t kFirstTokens = 16;
// Of a step's time that prompt tokens have at least, however long its decode rows were expected to take.
constexpr double kLeastShare = 0.02;
// Of their expected time, what decode rows may take before prompt tokens are to blame.
constexpr double kDecodeNoise = 1.25;
// A step with a prompt is off its expected time by this factor: once somebody else's doing, twice the new
// normal.
constexpr double kSurprise = 2;

}  // namespace

template <size_t N>
void PriceFit<N>::observe(const std::array<double, N>& x, double value, double scale) {
  const double weight = 1 / (scale * scale);
  for (size_t i = 0; i < N; ++i) {
    for (size_t j = 0; j < N; ++j)
      products_[i][j] = products_[i][j] * kMemory + x[i] * x[j] * weight;
    targets_[i] = targets_[i] * kMemory + x[i] * value * weight;
  }
  for (int sweep = 0; sweep < kSweeps; ++sweep)
    for (size_t i = 0; i < N; ++i) {
      if (products_[i][i] <= 0) continue;
      double rest = targets_[i];
      for (size_t j = 0; j < N; ++j)
        if (j != i) rest -= products_[i][j] * price_[j];
      price_[i] = std::max(0.0, rest / products_[i][i]);
    }
}

template <size_t N>
double PriceFit<N>::predict(const std::array<double, N>& x) const {
  double value = 0;
  for (size_t i = 0; i < N; ++i)
    value += price_[i] * x[i];
  return value;
}

template class PriceFit<2>;
template class PriceFit<3>;

void StepCost::observe(const StepShape& shape, int64_t ns) {
  const double value = double(std::max<int64_t>(ns, 1));
  const std::array<double, 3> decode{1, double(shape.decode_rows), double(shape.decode_reads)};
  if (shape.prompt_tokens == 0) return decode_.observe(decode, value, value);
  const double expected = decode_.predict(decode);
  const double added = std::max(value - expected, kLeastShare * value);
  const std::array<double, 2> prompt{double(shape.prompt_tokens), double(shape.prompt_reads)};
  const auto over = [&] {
    if (shape.decode_rows > 0 && expected == 0) return 1.0;  // it cannot be told whose time it was
    return std::max(1.0, (value - expected * kDecodeNoise) / std::max(1.0, prompt_.predict(prompt)));
  };
  const bool again = last_over_ > kSurprise && over() > kSurprise && last_prompt_tokens_ > 0;
  prompt_.observe(prompt, added, again ? prompt_.predict(prompt) + 1 : added);
  last_prompt_tokens_ = shape.prompt_tokens;
  last_over_ = over();
}

double StepCost::predict_ns(const StepShape& shape) const {
  return decode_.predict({1, double(shape.decode_rows), double(shape.decode_reads)}) +
         prompt_.predict({double(shape.prompt_tokens), double(shape.prompt_reads)});
}

double StepCost::prompt_ns(int64_t position, int64_t tokens) const {
  return last_over_ * prompt_.predict({double(tokens), double(positions_read(position, tokens))});
}

int32_t StepCost::tokens_within(double ns, int64_t position) const {
  int32_t low = 0, high = std::max(kFirstTokens, 2 * last_prompt_tokens_);
  while (low < high) {
    const int32_t middle = low + (high - low + 1) / 2;
    if (prompt_ns(position, middle) <= ns) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace invar
