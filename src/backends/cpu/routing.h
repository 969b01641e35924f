#pragma once
// Routing: which experts a row goes to, and with which weights (docs/numerics.md, section 6). Pure functions
// of one row; any thread.

#include <cstdint>

#include "graph/graph.h"
#include "kernels/kernel_table.h"

namespace invar {

struct Router {
  ExpertsAttr attr{};
  int32_t experts = 0;
  const float* correction = nullptr;    // [experts], added for the choice alone, or nullptr
  const float* expert_scale = nullptr;  // [experts], factors of the weights, or nullptr
};

// scores: [experts], of the router. probabilities: [experts] of scratch. ids, weights: [chosen], in the order
// in which the experts' results are summed. A fault where a score is NaN or infinite; ids are valid anyway.
void route(const Router& router, const KernelTable& kernels, const float* scores, float* probabilities,
           int32_t* ids, float* weights, uint8_t* fault);

}  // namespace invar
