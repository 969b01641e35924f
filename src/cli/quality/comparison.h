#pragma once
// Comparison: what is said of two models on a text, summed up over its tokens. A plain value.

#include <cstdint>
#include <span>

#include "cli/quality/divergence.h"
#include "cli/quality/window_scores.h"

namespace invar {

struct Comparison {
  int64_t tokens = 0, same_top = 0;
  double mean = 0, mean_error = 0, median = 0, p99 = 0, max = 0;  // KL in nats
  double top1_agreement = 0;                                      // share of tokens, 0 to 1
  double perplexity_a = 0, perplexity_b = 0;
};

// rows: at least one.
Comparison summarize(std::span<const RowDivergence> rows);

// e to the mean of the negated values.
double perplexity_of(std::span<const double> logprobs);

}  // namespace invar
