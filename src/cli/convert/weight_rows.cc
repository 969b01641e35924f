#include "cli/convert/weight_rows.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "cli/convert/block_encoders.h"
#include "format/codec_parts.h"
#include "format/source_planes.h"
#include "tensor/float16.h"

namespace invar {
namespace {

constexpr int kPlaneColumns = 256;

void read_planes(const WeightType& type, const SourcePlanes& m, int64_t row, float* out) {
  const bool fp8 = is_float(*type.form);
  const int64_t step = fp8 ? type.form->group : kPlaneColumns;
  const float factor = m.factor(row);
  for (int64_t col = 0; col < m.cols; col += step) {
    const int n = static_cast<int>(std::min(step, m.cols - col));
    UnpackedBlock block;
    type.unpack_planes(m, row, col, n, &block);
    float values[kPlaneColumns];
    if (fp8) {
      for (int k = 0; k < n; ++k)
        values[k] = e4m3_to_f32(block.code[k]) * block.head;
    } else {
      decode_block(*type.form, block, n, values);
    }
    for (int k = 0; k < n; ++k) {
      const int64_t to = m.order.empty() ? col + k : m.order[static_cast<size_t>(col + k)];
      out[to] = type.form->factors ? values[k] * factor : values[k];
    }
  }
}

// Rows of the matrix that holds a weight, one of a stack perhaps.
int64_t rows_of(const Weight& w) {
  return w.fused.empty() ? w.rows : w.fused_rows;
}

}  // namespace

StoredMatrix stored_matrix(const Weight& w, const SourceTensor& t) {
  return {.tensor = &t, .rows = rows_of(w), .cols = w.cols, .transposed = w.transposed};
}

int64_t stored_row(const Weight& w, int64_t row) {
  return w.expert * rows_of(w) + w.first_row + row * w.row_step;
}

void read_row(const StoredMatrix& m, int64_t row, float* out) {
  const SourceTensor& t = *m.tensor;
  if (t.planes != nullptr) return read_planes(*t.type, *t.planes, row, out);
  if (!m.transposed) return decode_weights(*t.type, t.data.data(), row * m.cols, m.cols, out);
  const int64_t first = row / m.rows * m.rows * m.cols + row % m.rows;
  for (int64_t c = 0; c < m.cols; ++c)
    decode_weights(*t.type, t.data.data(), first + c * m.rows, 1, out + c);
}

uint64_t source_bytes(const SourceTensor& t) {
  return t.data.size() + (t.planes != nullptr ? t.planes->scales.size() + t.planes->offsets.size() : 0);
}

const WeightType& lossless_type(const SourceTensor& t) {
  if (t.type->ggml_type >= 0) return *t.type;
  return known_weight_type(t.type->name == std::string_view("MLX_MXFP4") ? "MXFP4" : "F32");
}

void copy_mxfp4_row(const SourcePlanes& m, const WeightType& type, int64_t row, std::byte* out) {
  for (int64_t col = 0; col < m.cols; col += 32) {
    UnpackedBlock block;
    type.unpack_planes(m, row, col, 32, &block);
    *out++ = m.scales[static_cast<size_t>(row * m.groups() + col / m.group)];
    for (int i = 0; i < 16; ++i)
      *out++ = std::byte(block.code[i] | block.code[i + 16] << 4);
  }
}

}  // namespace invar
