#pragma once
// WeightSet: where the bytes of a graph's weights lie, by WeightId. Borrowed views into the packed file;
// whoever holds the file (models/Model) keeps them alive. Immutable after load, read by all threads.

#include <span>
#include <vector>

#include "tensor/packed.h"

namespace invar {

struct WeightSet {
  std::vector<PackedMatrix> matrices;           // [weights]; data == nullptr for vectors
  std::vector<std::span<const float>> vectors;  // [weights]; empty for matrices
};

}  // namespace invar
