#pragma once
// StepCost: how long a step of a given shape takes, learned from the steps that ran. The scheduler cuts
// prompts with it, so that running streams do not wait longer than they may. A wrong figure costs time only,
// never a bit: how prompts are cut does not change results. Engine thread only.
// Model: steps of decode rows cost a constant, a price per row and one per position that is read; prompt
// tokens add a price per token and one per position that they read. Each part is a least-squares fit of
// relative errors with prices that are not negative, in which older steps count less and less.

#include <array>
#include <cstddef>
#include <cstdint>

namespace invar {

struct StepShape {
  int32_t decode_rows = 0;   // and rows of forced tokens, by token
  int64_t decode_reads = 0;  // positions that their attention reads, summed over the rows
  int32_t prompt_tokens = 0;
  int64_t prompt_reads = 0;
};

// Positions that `tokens` consecutive rows of a sequence read, the first of them at `position`.
inline int64_t positions_read(int64_t position, int64_t tokens) {
  return tokens * position + tokens * (tokens + 1) / 2;
}

// Prices p >= 0 of N features that explain observed values: value ~ sum of p[i] * x[i].
template <size_t N>
class PriceFit {
 public:
  // An error of `scale` counts as one: by `value` itself, errors are relative, and what was disturbed once
  // counts little.
  void observe(const std::array<double, N>& x, double value, double scale);
  double predict(const std::array<double, N>& x) const;

 private:
  std::array<double, N> price_{};
  std::array<std::array<double, N>, N> products_{};  // sums of x xT, weighted
  std::array<double, N> targets_{};                  // sums of x value, weighted
};

class StepCost {
 public:
  void observe(const StepShape& shape, int64_t ns);
  double predict_ns(const StepShape& shape) const;
  // What rows of one prompt add to a step: by their prices, and as much more as the last such step took, lest
  // a machine that has just become slow is given more and more.
  double prompt_ns(int64_t position, int64_t tokens) const;
  // The most tokens of a prompt, the first at `position`, that add no more than `ns` to a step; at most twice
  // what the last step with a prompt had, or a few: further out prices may not hold.
  int32_t tokens_within(double ns, int64_t position) const;

 private:
  PriceFit<3> decode_;  // 1, rows, reads
  PriceFit<2> prompt_;  // tokens, reads
  int32_t last_prompt_tokens_ = 0;
  double last_over_ =
      1;  // what the last step with a prompt took of what is expected of it now, if that is more
};

}  // namespace invar
