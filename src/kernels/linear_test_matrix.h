#pragma once
// Random weight matrices for the tests of linear layers: kept as plain codes and scales, and packed from them
// by a literal reading of the layout in tensor/packed.h that shares nothing with the kernels.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/kernel_table.h"
#include "tensor/float16.h"

namespace invar {

struct AlignedBytes {
  explicit AlignedBytes(size_t n) : storage(n + 64), data(storage.data()) {
    data += (64 - reinterpret_cast<uintptr_t>(data) % 64) % 64;
  }
  AlignedBytes(AlignedBytes&&) = default;
  std::vector<std::byte> storage;  // zeroed
  std::byte* data;
};

struct TestMatrix {
  const PackedForm* form;
  int64_t rows, cols;
  std::vector<double> code;   // [rows, cols], zero point subtracted; or the weight of a float form
  std::vector<double> scale;  // [rows, cols / group]
  std::vector<double> bias;   // the same shape; 0 where the form has none
  AlignedBytes bytes;
  std::vector<float> factor = {};    // [rows], of a form with factors
  std::vector<int32_t> column = {};  // [cols], of a gathered form: where packed columns come from

  PackedMatrix packed() const { return {form, rows, cols, bytes.data}; }
};

namespace packing {

inline void put16(std::byte* p, uint16_t v) {
  std::memcpy(p, &v, 2);
}

// Sets `width` bits of code (n, k) in the planes of its group of 32.
inline void put_code(std::byte* planes, int bits, int c, int k, unsigned code) {
  const int quad = k / 4, lane = c * 4 + k % 4;
  const auto set = [&](size_t byte, int shift, unsigned value) { planes[byte] |= std::byte(value << shift); };
  std::byte* const start = planes;
  unsigned rest = code;
  if (bits == 8) {
    set(size_t(quad) * 64 + lane, 0, code);
    return;
  }
  if (bits >= 4) {
    set(size_t(quad & 3) * 64 + lane, quad >= 4 ? 4 : 0, rest & 15);
    rest >>= 4;
    planes = start + 256;
  }
  if (bits == 2 || bits == 3 || bits == 6) {
    set(size_t(quad >> 2) * 64 + lane, 2 * (quad & 3), rest & 3);
    rest >>= 2;
    planes += 128;
  }
  if (bits == 3 || bits == 5) set(size_t(lane), quad, rest & 1);
}

// fp16 scales with every kind of value that a file may hold: both signs, zero, subnormal, small, ordinary.
inline uint16_t random_half(std::mt19937& rng) {
  std::uniform_real_distribution<float> u(-0.02f, 0.02f);
  switch (rng() % 16) {
    case 0:
      return 0;
    case 1:
      return uint16_t(1 + rng() % 1023);  // subnormal
    case 2:
      return f32_to_f16(u(rng) * 0x1p-8f);
    case 3:
      return f32_to_f16(u(rng) * 100);
    default:
      return f32_to_f16(u(rng));
  }
}

// bf16 scales within the contract's limits: zero, powers of two, ordinary.
inline uint16_t random_bf16(std::mt19937& rng) {
  std::uniform_real_distribution<float> u(-0.02f, 0.02f);
  switch (rng() % 16) {
    case 0:
      return 0;
    case 1:
      return uint16_t((127 - 40 + rng() % 60) << 7);
    case 2:
      return f32_to_bf16(u(rng) * 100);
    default: {
      const uint16_t b = f32_to_bf16(u(rng));
      return (b & 0x7FFF) < (127 - 40) << 7 ? 0 : b;
    }
  }
}

inline void pack_quantized(TestMatrix& m, std::mt19937& rng) {
  const PackedForm& f = *m.form;
  const int group = f.group;
  const unsigned top = (1u << f.bits) - 1;
  std::byte* tile = m.bytes.data;
  for (int64_t n0 = 0; n0 < m.rows; n0 += 16, tile += tile_bytes(f, m.cols)) {
    std::byte* record = tile;
    for (int64_t k0 = 0; k0 < m.cols; k0 += 256) {
      const int cols = int(std::min<int64_t>(256, m.cols - k0)), groups = cols / group;
      std::byte* planes = record + scale_area_bytes(f, cols);
      for (int c = 0; c < 16 && n0 + c < m.rows; ++c) {
        const int64_t n = n0 + c;
        const uint16_t d = random_half(rng), mh = random_half(rng);
        const float head = f16_to_f32(d) * 0.125f;
        if (f.scale == ScaleKind::kF16xU8) put16(record + 2 * c, d);
        if (f.scale == ScaleKind::kF32xS8) std::memcpy(record + 4 * c, &head, 4);
        if (f.bias == BiasKind::kF16xU8) put16(record + 32 + 2 * c, mh);
        for (int g = 0; g < groups; ++g) {
          double& scale = m.scale[size_t(n * (m.cols / group) + k0 / group + g)];
          double& bias = m.bias[size_t(n * (m.cols / group) + k0 / group + g)];
          if (has_half_scales(f)) {
            const bool bf16 = f.scale == ScaleKind::kBF16, has_bias = f.bias != BiasKind::kNone;
            const uint16_t s = bf16 ? random_bf16(rng) : random_half(rng);
            const uint16_t b = bf16 ? random_bf16(rng) : random_half(rng);
            std::byte* p = record + g * (has_bias ? 64 : 32) + 2 * c;
            put16(p, s);
            scale = bf16 ? bf16_to_f32(s) : f16_to_f32(s);
            if (has_bias) put16(p + 32, b), bias = bf16 ? bf16_to_f32(b) : f16_to_f32(b);
          } else if (f.scale == ScaleKind::kF16xU8) {
            const auto sc = uint8_t(rng() % 8 ? rng() % 64 : rng() % 2 * 255),
                       mn = uint8_t(rng() % 8 ? rng() % 64 : 0);
            std::byte* p = record + 64 + g * 32 + c;
            p[0] = std::byte(sc), p[16] = std::byte(mn);
            scale = double(f16_to_f32(d)) * sc;
            bias = double(f16_to_f32(mh)) * mn;
          } else {
            const auto sc = int8_t(rng() % 8 ? int(rng() % 128) - 64 : rng() % 2 ? -128 : 127);
            record[64 + g * 16 + c] = std::byte(sc);
            scale = double(head) * sc;
          }
          // One group in eight holds only its lowest or only its highest code.
          const unsigned kind = rng() % 16;
          for (int i = 0; i < group; ++i) {
            const int k = g * group + i;
            const unsigned code = kind == 0 ? 0 : kind == 1 ? top : rng() & top;
            put_code(planes + k / 32 * code_bytes_per_32(f), f.bits, c, k % 32, code);
            m.code[size_t(n * m.cols + k0 + k)] = (f.table ? f.table->code[code] : int(code)) - f.zero_point;
          }
        }
      }
      record += record_bytes(f, cols);
    }
  }
}

inline void pack_float(TestMatrix& m, std::mt19937& rng) {
  std::uniform_real_distribution<float> u(-1, 1);
  const size_t size = dtype_bytes(m.form->dtype);
  for (int64_t n = 0; n < m.rows; ++n) {
    std::byte* tile = m.bytes.data + size_t(n / 16) * tile_bytes(*m.form, m.cols);
    for (int64_t k = 0; k < m.cols; ++k) {
      const unsigned kind = rng() % 32;
      float w = kind == 0 ? -0.0f : kind == 1 ? 0.0f : kind == 2 ? u(rng) * 0x1p-20f : u(rng);
      std::byte* p = tile + (k * 16 + n % 16) * size;
      if (m.form->dtype == Dtype::kF32) {
        std::memcpy(p, &w, 4);
      } else if (m.form->dtype == Dtype::kF16) {
        put16(p, f32_to_f16(w)), w = f16_to_f32(f32_to_f16(w));
      } else {
        put16(p, f32_to_bf16(w)), w = bf16_to_f32(f32_to_bf16(w));
      }
      m.code[size_t(n * m.cols + k)] = w;
    }
  }
}

// One value of E4M3 by its definition: no infinities, 0x7F and 0xFF are NaN.
inline double e4m3_value(unsigned byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return byte & 0x80 ? -magnitude : magnitude;
}

// Every byte that is a number, and scales from subnormal to 2^63; code: the weight, rounded once.
inline void pack_e4m3(TestMatrix& m, std::mt19937& rng) {
  const int64_t group = m.form->group;
  std::uniform_real_distribution<float> u(-0.01f, 0.01f);
  for (int64_t n = 0; n < m.rows; ++n) {
    std::byte* record = m.bytes.data + size_t(n / 16) * tile_bytes(*m.form, m.cols);
    for (int64_t k0 = 0; k0 < m.cols; k0 += group) {
      const int64_t cols = std::min(group, m.cols - k0);
      const unsigned kind = rng() % 16;
      const float scale = kind == 0 ? 0.0f : kind == 1 ? 0x1.8p-140f : kind == 2 ? u(rng) * 0x1p20f : u(rng);
      const float stored = scale * 256;
      std::memcpy(record + n % 16 * 4, &stored, 4);
      for (int64_t k = 0; k < cols; ++k) {
        const unsigned byte = rng() % 255, code = byte == 127 ? 255 - 1 : byte;
        record[64 + k * 16 + n % 16] = std::byte(code);
        m.code[size_t(n * m.cols + k0 + k)] = float(e4m3_value(code) * double(scale));
      }
      record += 64 + (cols + 3) / 4 * 4 * 16;
    }
  }
}

inline void put_factors(TestMatrix& m, std::mt19937& rng) {
  std::uniform_real_distribution<float> u(-3, 3);
  const size_t tile = tile_bytes(*m.form, m.cols);
  for (int64_t n = 0; n < m.rows; ++n) {
    m.factor.push_back(rng() % 8 ? u(rng) : 0x1p-20f * u(rng));
    std::memcpy(m.bytes.data + size_t(n / 16 + 1) * tile - 64 + n % 16 * 4, &m.factor.back(), 4);
  }
}

inline void put_columns(TestMatrix& m, std::mt19937& rng) {
  m.column.resize(size_t(m.cols));
  std::iota(m.column.begin(), m.column.end(), 0);
  std::shuffle(m.column.begin(), m.column.end(), rng);
  std::memcpy(m.bytes.data + tile_bytes(*m.form, m.cols) * size_t(tile_count(m.rows)), m.column.data(),
              m.column.size() * 4);
}

}  // namespace packing

// cols is rounded up to what the form needs: 256 for the two-level forms, 32 for the others, 1 for floats.
inline TestMatrix random_matrix(const PackedForm& form, int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 rng(seed);
  if (!is_float(form)) cols = int64_t(round_up(size_t(cols), has_half_scales(form) ? 32 : 256));
  const size_t scales = is_float(form) ? 0 : size_t(rows * (cols / form.group));
  TestMatrix m{&form,
               rows,
               cols,
               std::vector<double>(size_t(rows * cols)),
               std::vector<double>(scales),
               std::vector<double>(scales),
               AlignedBytes(matrix_bytes(form, rows, cols))};
  if (form.dtype == Dtype::kE4M3) {
    packing::pack_e4m3(m, rng);
  } else if (is_float(form)) {
    packing::pack_float(m, rng);
  } else {
    packing::pack_quantized(m, rng);
  }
  if (form.factors) packing::put_factors(m, rng);
  if (form.gathered) packing::put_columns(m, rng);
  return m;
}

// Activations [rows, cols]: ordinary rows with outliers, zero groups, a zero row, a tiny and a huge row, and
// codes at both ends in every group.
inline std::vector<float> random_rows(int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> x(size_t(rows * cols));
  for (int64_t r = 0; r < rows; ++r) {
    const float size = r % 16 == 5    ? 0.0f
                       : r % 16 == 7  ? 0x1p-60f
                       : r % 16 == 9  ? 0x1p40f
                       : r % 16 == 11 ? 0x1p-46f
                                      : 1;
    for (int64_t k = 0; k < cols; ++k) {
      float v = normal(rng) * size;
      if (rng() % 64 == 0) v *= 30;
      if (rng() % 64 == 0) v = -0.0f;
      if ((k / 32 + r) % 13 == 0) v = 0;  // whole groups
      if ((k / 32 + r) % 17 == 1) v = k % 2 ? size : -size;
      if ((k / 32 + r) % 17 == 2) v = r % 2 ? size : -size;  // the largest sums that 16 bits must hold
      x[size_t(r * cols + k)] = v;
    }
  }
  return x;
}

}  // namespace invar
