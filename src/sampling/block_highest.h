#pragma once
// BlockHighest: the highest value of every 64 of a row, by which the highest of all are found without a look
// at most of them. Scratch of whoever searches.

#include <cstdint>
#include <span>
#include <vector>

namespace invar {

class BlockHighest {
 public:
  void find(std::span<const float> x);  // no NaN
  void forget() { highest_.clear(); }
  bool known() const { return !highest_.empty(); }

  // What at least k values reach; -infinity when the blocks do not tell. k blocks whose highest value is at
  // least b hold k values of at least b. k >= 1.
  float reached_by(int32_t k);
  // Indices of the values that are at least `bound`, ascending. x as it was in find().
  void at_least(std::span<const float> x, float bound, std::vector<int32_t>* out) const;

 private:
  static constexpr size_t kBlock = 64;
  std::vector<float> highest_, order_;
};

}  // namespace invar
