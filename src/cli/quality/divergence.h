#pragma once
// How far two next-token distributions are apart. Computed with the project's own functions in double, so a
// report has the same digits on every machine. Plain values; call them under FpEnvironment.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace invar {

struct RowDivergence {
  double kl = 0;  // KL(p || q) in nats; rounding may leave -1e-16
  bool same_top = false;
  double p_logprob = 0, q_logprob = 0;  // of the token that the text has there
};
// p, q: logits [vocab], at least one. Errors: kInternal when one is NaN or infinite; the message says whose.
Result<RowDivergence> compare_rows(std::span<const float> p, std::span<const float> q, int32_t token);

// Of a set of numbers. Quantiles by the nearest rank: the least value that `share` of all do not exceed.
double mean_of(std::span<const double> values);
double quantile_of(std::vector<double> values, double share);
// The standard error of the mean of independent values; 0 for less than two.
double standard_error(std::span<const double> values);

}  // namespace invar
