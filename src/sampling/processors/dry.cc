// DRY, "don't repeat yourself" (p-e-w 2024): where a token would lengthen a repetition of what was said
// before, its logit falls by multiplier * base^(length - allowed length). A repetition is the longest end of
// the history that also stands in front of an earlier occurrence of that token; it never reaches across a
// breaker, and a breaker of a single token is not held back.
#include <algorithm>
#include <utility>

#include "sampling/processor.h"
#include "tensor/exact_math.h"

namespace invar {
namespace {

// z[i]: how many tokens before position n - i agree with those before n; by the Z algorithm on the reversed
// history, so in linear time whatever it is.
std::vector<int32_t> common_ends(std::span<const int32_t> history) {
  const size_t n = history.size();
  const auto reversed = [&](size_t i) { return history[n - 1 - i]; };
  std::vector<int32_t> z(n, 0);
  for (size_t i = 1, left = 0, right = 0; i < n; ++i) {
    size_t length = i < right ? std::min(right - i, size_t(z[i - left])) : 0;
    while (i + length < n && reversed(i + length) == reversed(length))
      ++length;
    z[i] = int32_t(length);
    if (i + length > right) left = i, right = i + length;
  }
  return z;
}

float penalty_of(const SamplingParams& p, int32_t length) {
  const double exponent = double(length - p.dry_allowed_length) * log64(double(p.dry_base));
  return bounded(float(double(p.dry_multiplier) * exp64(std::clamp(exponent, -600.0, 600.0))));
}

}  // namespace

bool dry_active(const ProcessorInput& in) {
  return in.params.dry_multiplier > 0.0f && in.params.dry_penalty_last_n != 0;
}

void dry_apply(const ProcessorInput& in, Candidates& candidates) {
  const SamplingParams& p = in.params;
  std::span<const int32_t> history = in.history;
  if (p.dry_penalty_last_n > 0 && history.size() > size_t(p.dry_penalty_last_n))
    history = history.last(size_t(p.dry_penalty_last_n));
  const size_t n = history.size();
  const size_t reach = p.dry_breakers == nullptr ? n : p.dry_breakers->open_tail(history);
  const int32_t least = std::max(p.dry_allowed_length, 1);
  if (n < 2 || reach < size_t(least)) return;

  const std::vector<int32_t> z = common_ends(history);
  std::vector<std::pair<int32_t, int32_t>> repeats;  // token, length
  for (size_t i = 1; i < n; ++i) {
    const int32_t length = int32_t(std::min(size_t(z[i]), reach));
    if (length >= least) repeats.emplace_back(history[n - i], length);
  }
  std::sort(repeats.begin(), repeats.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second > b.second;
  });
  const std::span<float> values = candidates.values();
  int32_t last = -1;
  for (const auto& [token, length] : repeats) {
    if (token == std::exchange(last, token)) continue;
    float& x = values[size_t(token)];
    if (x == kExcluded || (p.dry_breakers != nullptr && p.dry_breakers->is_single(token))) continue;
    x = bounded(x - penalty_of(p, length));
  }
}

}  // namespace invar
