#pragma once
// Rows of numbers -> rows of a tensor type, on all threads of a pool. Errors name the tensor. The same bytes
// for any number of threads.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "base/function_ref.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "format/weight_type.h"
#include "tensor/dtype.h"

namespace invar {

struct RowsToEncode {
  const std::string& tensor;  // its stored name
  int64_t first, count;       // rows
  int64_t cols;
  FunctionRef<void(int64_t row, float* out)> read;  // from any thread
  // From any thread: writes a row that needs no encoding. False, or none: it is read and encoded.
  std::function<bool(int64_t row, std::byte* out)> copy = nullptr;
};

// Blocks of `type`, which has an encoder if any row needs one, densely from `out` on.
Status encode_rows(const RowsToEncode& rows, const WeightType& type, ThreadPool& pool, std::byte* out);

// Affine codes of 4 bits, two in a byte, with scales and biases (kF16 or kBF16) per `group` columns, each of
// the three densely from its pointer on: what MLX has for a matrix.
struct AffinePlanes {
  std::byte *codes, *scales, *biases;
};
Status encode_affine4_rows(const RowsToEncode& rows, int32_t group, Dtype scales, ThreadPool& pool,
                           const AffinePlanes& out);

// Scales of F32 weights are F16, which has more digits than BF16.
Dtype affine_scale_dtype(const WeightType& weights);

}  // namespace invar
