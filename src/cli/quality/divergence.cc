#include "cli/quality/divergence.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "tensor/exact_math.h"

namespace invar {
namespace {

// Below this a term adds nothing to a sum of 1 or more.
constexpr double kLeastExponent = -700;

// e^x for -700 <= x <= 0 within a few ulp. Without fused operations, which most of these loops would have to
// emulate, and without branches, so that the compiler computes several at a time.
inline double exp_of(double x) {
  const double shifted = x * 0x1.71547652b82fep0 + 0x1.8p52;  // its low bits are round(x / ln 2)
  const double k = shifted - 0x1.8p52;
  const double f = (x - k * 0x1.62e42feep-1) - k * 0x1.a39ef35793c76p-33;  // ln 2 in two parts
  double p = 1.0 / 6227020800;
  for (const double c : {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
                         1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0})
    p = p * f + c;
  return f64_of(bits_of(p) + (bits_of(shifted) << 52));
}

// Sets e to e^(x - the largest) and returns the logarithm of the sum of all e^x.
double log_sum_exp(std::span<const float> logits, std::vector<double>& e) {
  const double top = *std::max_element(logits.begin(), logits.end());
  e.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const double x = double(logits[i]) - top;
    e[i] = x > kLeastExponent ? exp_of(x) : 0;
  }
  double sum = 0;
  for (const double term : e)
    sum += term;
  return top + log64(sum);
}

bool all_finite(std::span<const float> row) {
  return std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); });
}

}  // namespace

Result<RowDivergence> compare_rows(std::span<const float> p, std::span<const float> q, int32_t token) {
  CHECK(!p.empty() && p.size() == q.size() && token >= 0 && size_t(token) < p.size());
  if (!all_finite(p)) return internal_error("the first model gave a logit that is NaN or infinite");
  if (!all_finite(q)) return internal_error("the second model gave a logit that is NaN or infinite");
  thread_local std::vector<double> e;
  const double lq = log_sum_exp(q, e), lp = log_sum_exp(p, e);
  double sum = 0, total = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    sum += e[i];
    total += e[i] * ((double(p[i]) - lp) - (double(q[i]) - lq));
  }
  RowDivergence d;
  d.kl = total / sum;
  d.same_top =
      std::max_element(p.begin(), p.end()) - p.begin() == std::max_element(q.begin(), q.end()) - q.begin();
  d.p_logprob = double(p[size_t(token)]) - lp;
  d.q_logprob = double(q[size_t(token)]) - lq;
  return d;
}

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (const double v : values)
    sum += v;
  return values.empty() ? 0 : sum / double(values.size());
}

double quantile_of(std::vector<double> values, double share) {
  CHECK(!values.empty() && share > 0 && share <= 1);
  const size_t rank = size_t(std::ceil(share * double(values.size())));
  const auto at = values.begin() + ptrdiff_t(std::clamp<size_t>(rank, 1, values.size()) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

double standard_error(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const double mean = mean_of(values), n = double(values.size());
  double squares = 0;
  for (const double v : values)
    squares += (v - mean) * (v - mean);
  return std::sqrt(squares / (n - 1) / n);
}

}  // namespace invar
