#include "engine/prompt_shares.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "engine/rank.h"
#include "kv/page_pool.h"

namespace invar {

std::span<const int32_t> PromptShares::divide(std::span<Sequence* const> prompts, int32_t room,
                                              int32_t chunk) {
  std::map<uint64_t, int32_t> of_tenant;
  for (const Sequence* prompt : prompts)
    ++of_tenant[prompt->tenant()];
  shares_.clear();
  weights_.clear();
  for (const Sequence* prompt : prompts) {
    const int32_t doublings = std::clamp(-prompt->priority(), -kMaxPriorityDoublings, kMaxPriorityDoublings);
    shares_.push_back(std::min(prompt->pending(), chunk));
    weights_.push_back(std::ldexp(1.0, doublings) / of_tenant[prompt->tenant()]);
  }
  order_.resize(prompts.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::sort(order_.begin(), order_.end(),
            [&](size_t a, size_t b) { return shares_[a] / weights_[a] < shares_[b] / weights_[b]; });
  double weight_left = std::accumulate(weights_.begin(), weights_.end(), 0.0), room_left = room;
  for (const size_t i : order_) {
    const int32_t fair = int32_t(room_left * (weights_[i] / weight_left));
    if (shares_[i] > fair) shares_[i] = std::min(shares_[i], std::max(fair, kPageTokens));
    room_left = std::max(0.0, room_left - shares_[i]);
    weight_left -= weights_[i];
  }
  return shares_;
}

}  // namespace invar
