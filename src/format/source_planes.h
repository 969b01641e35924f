#pragma once
// SourcePlanes: a stored matrix whose codes, scales and offsets lie in tensors of their own, as views into
// the maps of its source. Sizes have been checked against rows, cols and group. Immutable, shared.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace invar {

struct SourcePlanes {
  std::span<const std::byte> data;     // codes; as many bytes as rows * cols codes take, in the type's order
  std::span<const std::byte> scales;   // per row and group, or as the type says
  std::span<const std::byte> offsets;  // biases or zero points; empty where the type has none
  std::span<const std::byte> columns;  // the group of each column, i32; empty: groups follow each other
  std::vector<int32_t> order;          // with columns: these, group by group, as they are packed
  std::vector<float> factors;          // each of as many consecutive rows; empty: none
  int64_t rows = 0, cols = 0;
  int32_t group = 0;         // columns per scale
  int32_t group_rows = 1;    // rows per scale
  bool wide_scales = false;  // f32 instead of bf16
  int32_t zero_shift = 0;    // what is added to a stored zero point

  int64_t groups() const { return (cols + group - 1) / group; }
  float factor(int64_t row) const {
    const auto count = static_cast<int64_t>(factors.size());
    return count == 0 ? 1.0f : factors[static_cast<size_t>(row / (rows / count))];
  }
};

}  // namespace invar
