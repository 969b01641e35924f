#pragma once
// Rows of stored matrices as numbers, by the functions that unpack blocks and nothing else of the engine:
// what references judge whole layers with.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "format/model_source.h"
#include "format/source_planes.h"
#include "format/weight_type.h"
#include "tensor/float16.h"

namespace invar {

inline double half_value(ScaleKind kind, uint16_t h) {
  return kind == ScaleKind::kBF16 ? bf16_to_f32(h) : f16_to_f32(h);
}
inline double block_scale(const PackedForm& form, const UnpackedBlock& b, int group) {
  switch (form.scale) {
    case ScaleKind::kF16xU8:
      return half_value(form.scale, b.d[0]) * b.sub[group];
    case ScaleKind::kF32xS8:
      return double(b.head) * b.sub[group];
    default:
      return half_value(form.scale, b.d[group]);
  }
}
inline double block_bias(const PackedForm& form, const UnpackedBlock& b, int group) {
  if (form.bias == BiasKind::kNone) return 0;
  if (form.bias == BiasKind::kF16xU8) return half_value(form.scale, b.m[0]) * b.sub_m[group];
  return half_value(form.scale, b.m[group]);
}
// The code less the zero point.
inline int block_code(const PackedForm& form, const UnpackedBlock& b, int i) {
  return (form.table ? form.table->code[b.code[i]] : b.code[i]) - form.zero_point;
}

// A row: weights are scale * code + bias, those of element k in [k / group], all times the factor; of float
// weights only codes. Where there are columns, element k is that of column columns[k].
struct StoredRow {
  std::vector<double> code, scale, bias;
  int group = 1;
  double factor = 1;
  std::vector<int32_t> columns;

  // The one rounding of the reference dequantization, and that of the factor.
  float value(size_t k) const {
    if (scale.empty()) return float(code[k]);
    const float weight = float(scale[k / size_t(group)] * code[k] + bias[k / size_t(group)]);
    return float(weight * factor);
  }
  size_t column(size_t k) const { return columns.empty() ? k : size_t(columns[k]); }
};

// A byte of E4M3.
inline double e4m3_number(int x) {
  const int exponent = x >> 3 & 15, mantissa = x & 7;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return x & 0x80 ? -magnitude : magnitude;
}

inline StoredRow stored_row(const SourceTensor& t, int64_t r) {
  const WeightType& w = *t.type;
  const int64_t cols = t.shape.back();
  const std::byte* at = t.data.data() + r * (cols / w.block) * w.block_bytes;
  StoredRow row;
  const auto push_float = [&](Dtype type, const std::byte* p) {
    uint32_t bits = 0;
    std::memcpy(&bits, p, dtype_bytes(type));
    row.code.push_back(type == Dtype::kF32   ? bits_float(bits)
                       : type == Dtype::kF16 ? f16_to_f32(uint16_t(bits))
                                             : bf16_to_f32(uint16_t(bits)));
  };
  const auto push_block = [&](const UnpackedBlock& b, int n) {
    if (w.form->dtype == Dtype::kE4M3) {
      for (int i = 0; i < n; ++i)
        row.code.push_back(float(e4m3_number(b.code[i]) * b.head));
      return;
    }
    row.group = w.form->group;
    for (int g = 0; g < n / row.group; ++g) {
      row.scale.push_back(block_scale(*w.form, b, g));
      row.bias.push_back(block_bias(*w.form, b, g));
    }
    for (int i = 0; i < n; ++i)
      row.code.push_back(block_code(*w.form, b, i));
  };
  if (t.planes != nullptr) row.factor = t.planes->factor(r), row.columns = t.planes->order;
  const int step = w.unpack_planes != nullptr ? 32 : w.block;
  for (int64_t k = 0; k < cols; k += step, at += w.block_bytes) {
    UnpackedBlock b;
    if (w.unpack_planes != nullptr) {
      w.unpack_planes(*t.planes, r, k, 32, &b);
      push_block(b, 32);
    } else if (w.unpack != nullptr) {
      w.unpack(at, 1, &b);
      push_block(b, w.block);
    } else {
      push_float(w.form->dtype, at);
    }
  }
  return row;
}

}  // namespace invar
