#pragma once
// Candidates: the tokens that can still be chosen, and their logits so far. Dense at first: all that are not
// kExcluded. A filter that leaves few lists them, and later links look at those only; sums keep the lanes of
// docs/numerics.md (id mod 16), so that listing never changes a bit. Scratch of one Sampler, on its thread.

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "sampling/block_highest.h"
#include "tensor/row_kernels.h"

namespace invar {

inline constexpr float kExcluded = -std::numeric_limits<float>::infinity();

// What a value becomes that leaves the range of fp32: it stays a candidate.
inline float bounded(float x) {
  constexpr float kMax = std::numeric_limits<float>::max();
  return x > kMax ? kMax : x < -kMax ? -kMax : x;
}

// Sums in 16 lanes by id mod 16, then the tree of section 1.
template <class T>
class LaneSum {
 public:
  void add(int32_t id, T value) { lanes_[size_t(id) % 16] = lanes_[size_t(id) % 16] + value; }
  T total() const {
    std::array<T, 16> s = lanes_;
    for (const size_t width : {8, 4, 2, 1})
      for (size_t l = 0; l < width; ++l)
        s[l] = s[l] + s[l + width];
    return s[0];
  }

 private:
  std::array<T, 16> lanes_{};
};

struct Softmax {
  float max;  // the highest logit
  float sum;  // of E(x - max)
};

class Candidates {
 public:
  explicit Candidates(const RowKernels& rows) : rows_(rows) {}  // borrowed

  void reset(std::span<const float> logits);  // all are candidates; borrowed until the next reset

  int32_t vocab() const { return int32_t(x_.size()); }
  float operator[](int32_t id) const { return x_[size_t(id)]; }
  // To change: [vocab], before anything else is asked of the candidates. An excluded value stays excluded;
  // those of ids that are not listed mean nothing.
  std::span<float> values();
  void exclude(int32_t id);
  void divide(float divisor);  // every logit; what leaves the range of fp32 is bounded
  // [vocab]; those of ids that are not listed mean nothing.
  std::span<const float> logits() const { return x_; }

  bool listed() const { return listed_; }
  std::span<const int32_t> ids() const { return ids_; }  // ascending; when listed
  // Only these stay, each a candidate; takes the vector's content. Any order.
  void keep(std::vector<int32_t>& ids);

  int32_t count() const;
  int32_t likeliest();  // the lowest id of the highest logit; -1 = there is no candidate
  // The likeliest, or what that was before a division that may have made others equal to it: no pass over
  // all.
  int32_t likely();
  // Candidates with a logit of at least `bound`, ascending.
  void at_least(float bound, std::vector<int32_t>* out);
  // The k highest, equal ones by the lowest id, in no order; all when there are fewer.
  void highest(int32_t k, std::vector<int32_t>* out);

  // There must be a candidate.
  const Softmax& softmax();
  float probability(int32_t id, const Softmax& s) const;  // RN(E(x - max) / sum)
  // The mean of x - max: the sum of double(weight) * double(x - max) in lanes, by that of the weights. Finds
  // the softmax on the way.
  double mean_distance();
  double sum() const;                    // of the logits
  double square_sum(double mean) const;  // of (logit - mean)^2

  // The logits where excluded ones are kExcluded.
  std::span<const float> resolved();

  std::vector<int32_t> scratch_ids;
  std::vector<float> scratch;  // by id, where a link needs a number per token

 private:
  BlockHighest& blocks();
  int32_t find_likeliest() const;
  WeightSums weight_sums(float max) const;
  void changed();

  const RowKernels& rows_;
  std::span<const float> x_;  // the logits so far: the caller's, or own_ once something changed them
  std::vector<float> own_;
  std::vector<int32_t> ids_;
  bool listed_ = false;
  // Of the candidates as they are; unknown after a change.
  BlockHighest blocks_;  // when dense
  std::optional<int32_t> likeliest_, likely_;
  std::optional<Softmax> softmax_;
};

}  // namespace invar
