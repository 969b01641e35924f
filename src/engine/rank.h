#pragma once
// Rank: the place of a request in every line. The lower one is admitted first, is given pages first and is
// preempted last. It is the moment of arrival, moved by the priority, so that whoever waits comes first at
// some time, whatever arrives later.

#include <compare>
#include <cstdint>

namespace invar {

inline constexpr int64_t kPriorityStepNs = 10'000'000'000;  // what one step of priority is worth
inline constexpr int32_t kMaxPriorityDoublings = 4;         // of a prompt's share of a step

struct Rank {
  int64_t moment = 0;   // of submission, later by kPriorityStepNs per step of priority
  uint64_t serial = 0;  // of the request, in order of arrival
  int32_t choice = 0;   // of the request
  auto operator<=>(const Rank&) const = default;
};

}  // namespace invar
