#pragma once
// Packing: rows of a stored tensor -> one tile of the packed layout (tensor/packed.h). Pure functions; tiles
// are independent, so any thread may pack any tile. Codes and scales move without rounding.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "format/weight_type.h"

namespace invar {

// Which stored row becomes output channel r. Converters of some families interleave the two halves of every
// rotary head (stored row 2i + j of a head is channel j * head_dim/2 + i); head_dim 0 leaves rows as they
// are. Of a matrix that is interleaved with others, every step-th row is one of its own.
struct RowOrder {
  int64_t head_dim = 0;
  int64_t step = 1;

  int64_t stored(int64_t r) const {
    if (head_dim == 0) return r * step;
    const int64_t half = head_dim / 2, head = r / head_dim, in_head = r % head_dim;
    return head * head_dim + 2 * (in_head % half) + in_head / half;
  }
};

// Writes tile_bytes(*type.form, cols) bytes at out: channels 16*tile .. 16*tile+15 of data [rows, cols], with
// the rows of others between them where order has a step.
// Scales and biases that are NaN or infinite are an error; -0 becomes +0. Values of float types are kept
// whatever they are. cols is a multiple of 32 for quantized types. Types with planes need them; data is then
// a part of planes->data, and says which rows are meant.
Status pack_tile(const WeightType& type, std::span<const std::byte> data, int64_t rows, int64_t cols,
                 RowOrder order, int64_t tile, std::byte* out, const SourcePlanes* planes = nullptr);

// The same of data [cols, stored_rows], float types only: channel r is column first + order.stored(r).
Status pack_transposed_tile(const WeightType& type, std::span<const std::byte> data, int64_t stored_rows,
                            int64_t first, int64_t rows, int64_t cols, RowOrder order, int64_t tile,
                            std::byte* out);

// out[r] = the stored value as f32, exactly. F32, F16 and BF16 only.
Status pack_vector(const WeightType& type, std::span<const std::byte> data, int64_t size, RowOrder order,
                   float* out);

}  // namespace invar
