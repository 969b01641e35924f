#pragma once
// PromptShares: how a step's room for prompt tokens is divided. Weighted max-min fairness: every prompt gets
// its share or what it wants, and what short ones leave goes to the long ones. Tenants weigh alike, however
// many prompts each has; among its own, a step of priority doubles the weight of a
// prompt. Keeps its arrays from step to step.

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sequence.h"

namespace invar {

class PromptShares {
 public:
  // prompts: by rank. room: tokens to divide, at least one. chunk: the most for one prompt. Of what
  // the long ones of a tenant get, each has half of its part; the other half goes by rank, to a page at least
  // for each: so they finish one after the other instead of all at the end, and none waits for another. The
  // sum is above `room` by less than one token per tenant.
  std::span<const int32_t> divide(std::span<Sequence* const> prompts, int32_t room, int32_t chunk);

 private:
  std::vector<int32_t> shares_;  // [prompts]
  std::vector<double> weights_;  // [prompts]
  std::vector<size_t> order_;    // of prompts, by wish over weight
};

}  // namespace invar
