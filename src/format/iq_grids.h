#pragma once
// The points that the IQ types choose their weights from, as the format defines them. An entry holds the
// magnitudes of eight weights, two bits each, the first in the lowest bits; of IQ3, those of four weights in
// nibbles. What a magnitude stands for: the code tables of tensor/packed.h.

#include <cstdint>

namespace invar {

extern const uint16_t kIq2XxsGrid[256], kIq2XsGrid[512], kIq2SGrid[1024];
extern const uint16_t kIq3XxsGrid[256], kIq3SGrid[512];
extern const uint16_t kIq1Grid[2048];

}  // namespace invar
