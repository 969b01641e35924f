#include "engine/prompt_shares.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "engine/rank.h"
#include "kv/page_pool.h"

namespace invar {
namespace {

constexpr double kRounding = 1e-6;  // tokens; what sums of parts may be off

}  // namespace

std::span<const int32_t> PromptShares::divide(std::span<Sequence* const> prompts, int32_t room,
                                              int32_t chunk) {
  struct Tenant {
    double weight = 0;
    double room = 0;  // for those of its prompts that want more than their part, by rank
  };
  std::map<uint64_t, Tenant> tenants;
  shares_.clear();
  weights_.clear();
  for (const Sequence* prompt : prompts) {
    const int32_t doublings = std::clamp(-prompt->priority(), -kMaxPriorityDoublings, kMaxPriorityDoublings);
    shares_.push_back(std::min(prompt->pending(), chunk));
    weights_.push_back(std::ldexp(1.0, doublings));
    tenants[prompt->tenant()].weight += weights_.back();
  }
  for (size_t i = 0; i < prompts.size(); ++i)
    weights_[i] /= tenants[prompts[i]->tenant()].weight;
  order_.resize(prompts.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::sort(order_.begin(), order_.end(),
            [&](size_t a, size_t b) { return shares_[a] / weights_[a] < shares_[b] / weights_[b]; });
  double weight_left = std::accumulate(weights_.begin(), weights_.end(), 0.0), room_left = room;
  auto longer = order_.begin();
  for (; longer != order_.end(); ++longer) {
    if (shares_[*longer] > int32_t(room_left * (weights_[*longer] / weight_left))) break;
    room_left -= shares_[*longer];
    weight_left -= weights_[*longer];
  }
  const auto part = [&](size_t i) { return room_left * (weights_[i] / weight_left); };
  const auto own = [&](size_t i) { return int32_t(part(i) / 2); };
  for (auto i = longer; i != order_.end(); ++i)
    tenants[prompts[*i]->tenant()].room += part(*i) - own(*i);
  std::sort(longer, order_.end());
  for (auto i = longer; i != order_.end(); ++i) {
    double& by_rank = tenants[prompts[*i]->tenant()].room;
    const int32_t wanted = std::min(shares_[*i], std::max(int32_t(part(*i)), kPageTokens)) - own(*i);
    const int32_t added = std::min(wanted, int32_t(std::ceil(by_rank - kRounding)));
    shares_[*i] = own(*i) + added;
    by_rank = std::max(0.0, by_rank - added);
  }
  return shares_;
}

}  // namespace invar
