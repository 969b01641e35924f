#include "sampling/dry_breakers.h"

#include <algorithm>

#include "base/check.h"

namespace invar {

void DryBreakers::add(std::span<const int32_t> sequence) {
  CHECK(!sequence.empty() && sequence.size() <= kMaxLength);
  const size_t word = size_t(sequence[0]) / 64;
  if (word >= heads_.size()) heads_.resize(word + 1);
  heads_[word] |= uint64_t{1} << (sequence[0] % 64);
  std::vector<int32_t> tail(sequence.begin() + 1, sequence.end());
  auto& tails = tails_[sequence[0]];
  if (std::find(tails.begin(), tails.end(), tail) == tails.end()) tails.push_back(std::move(tail));
}

bool DryBreakers::is_single(int32_t token) const {
  if (!is_head(token)) return false;
  const auto& tails = tails_.at(token);
  return std::any_of(tails.begin(), tails.end(),
                     [](const std::vector<int32_t>& tail) { return tail.empty(); });
}

size_t DryBreakers::open_tail(std::span<const int32_t> history) const {
  const size_t n = history.size();
  size_t last_end = 0;
  // A sequence that starts further back than its length before the latest end cannot end later.
  for (size_t start = n; start-- > 0 && start + kMaxLength > last_end;) {
    if (!is_head(history[start])) continue;
    for (const std::vector<int32_t>& tail : tails_.at(history[start])) {
      const size_t end = start + 1 + tail.size();
      if (end <= last_end || end > n) continue;
      if (std::equal(tail.begin(), tail.end(), history.begin() + ptrdiff_t(start) + 1)) last_end = end;
    }
  }
  return n - last_end;
}

}  // namespace invar
