#include "cli/quality/comparison.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/fp_environment.h"
#include "tensor/exact_math.h"

namespace invar {
namespace {

constexpr double kLargestExponent = 700;  // of exp64

}  // namespace

double perplexity_of(std::span<const double> logprobs) {
  const FpEnvironment contract;
  return exp64(std::min(-mean_of(logprobs), kLargestExponent));
}

Comparison summarize(std::span<const RowDivergence> rows) {
  CHECK(!rows.empty());
  const FpEnvironment contract;
  std::vector<double> kl, p, q;
  Comparison c;
  for (const RowDivergence& row : rows) {
    kl.push_back(row.kl);
    p.push_back(row.p_logprob);
    q.push_back(row.q_logprob);
    c.same_top += row.same_top ? 1 : 0;
  }
  c.tokens = int64_t(rows.size());
  c.mean = mean_of(kl);
  c.mean_error = standard_error(kl);
  c.median = quantile_of(kl, 0.5);
  c.p99 = quantile_of(kl, 0.99);
  c.max = *std::max_element(kl.begin(), kl.end());
  c.top1_agreement = double(c.same_top) / double(c.tokens);
  c.perplexity_a = perplexity_of(p);
  c.perplexity_b = perplexity_of(q);
  return c;
}

}  // namespace invar
