#pragma once
// DryBreakers: token sequences that DRY does not look across. Immutable; shared by the requests that have the
// same ones.

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace invar {

class DryBreakers {
 public:
  static constexpr size_t kMaxLength = 21;  // tokens of a sequence

  // Sequences of 1 to kMaxLength ids.
  void add(std::span<const int32_t> sequence);

  // A breaker of this token alone.
  bool is_single(int32_t token) const;
  // How many tokens at the end of `history` lie behind its last breaker; all when there is none.
  size_t open_tail(std::span<const int32_t> history) const;

 private:
  bool is_head(int32_t token) const {
    const size_t word = size_t(token) / 64;
    return word < heads_.size() && (heads_[word] >> (token % 64) & 1) != 0;
  }

  std::vector<uint64_t> heads_;  // a bit per token id: it begins a sequence
  // By the first token: what must follow; empty = nothing.
  std::unordered_map<int32_t, std::vector<std::vector<int32_t>>> tails_;
};

}  // namespace invar
