#pragma once
// The packed form of a weight matrix [rows = output channels, cols = K]: one layout for every instruction
// set, on disk, mapped. docs/formats.md draws it.
//
// Tile = 16 output channels x all K; tiles follow each other. Rows pad to 16 with channels of zero scale
// (quantized) or zero weights (float).
//
// Quantized tile: records of 256 K, the last one shorter (a multiple of 32); each is [scale area][code
// planes], both in 64-byte multiples. The record of k columns has G = k / group scale groups:
//   scale area, padded to 64 bytes, c = channel 0..15:
//     ScaleKind::kF16, kBF16          scale[G][16] of that type             group g, channel c at g*16 + c
//     the same with a bias            per g: scale[16], bias[16]
//     kF16xU8 with bias kF16xU8       f16 d[16], f16 m[16], then per g: u8 sc[16], u8 mn[16]
//                                     (scale d*sc, bias m*mn)
//     kF32xS8                         f32 d[16], then per g: s8 sc[16]      (scale d*sc)
//   code planes, per group of 32 K and in this order, lane = channel*4 + k%4, quad = k/4 within the 32:
//     low 4 bits (bits >= 4)          64-byte vector v = 0..3: low nibble = quad v, high nibble = quad v+4
//     8 bits                          64-byte vector v = 0..7: the whole code of quad v
//     2-bit plane (bits 2, 3, 6)      64-byte vector v = 0..1: bits 2*j..2*j+1 = quad v*4 + j
//     1-bit plane (bits 3, 5)         one 64-byte vector: bit j = quad j
//   Order of planes by bits: 2: {2}; 3: {2, 1}; 4: {4}; 5: {4, 1}; 6: {4, 2}; 8: {8}. The first plane holds
//   the low bits. Weight value = scale * (code - zero_point) + bias. In a form with a table the planes hold
//   indices (4 bits), and the code is table[index].
//
// Float tile: element k of the 16 channels side by side, [cols padded to 4][16] of the dtype, zero padded.
// Of E4M3: records of `group` K, the last one shorter, each f32 scale[16], then the elements, one byte each.
// Read as f16 (sign in bit 15, the other seven bits from bit 7 on) a byte is 2^-8 times its value, so the
// scale is stored 2^8 times as large and the weight is RN(f16 * scale).
//
// A form with factors: every tile ends with f32 factor[16], applied once to each finished sum.
// A gathered form: the matrix ends with i32 columns[cols], padded to 64 bytes: packed column k is column
// columns[k] of the matrix, and meets that element of a row.

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace invar {

enum class ScaleKind : uint8_t { kNone, kF16, kBF16, kF16xU8, kF32xS8 };
enum class BiasKind : uint8_t { kNone, kF16, kBF16, kF16xU8 };

// The codes that 4-bit indices stand for, whole and as nibbles.
struct CodeTable {
  alignas(16) uint8_t code[16], low[16], high[16];
  uint8_t bits;  // 5: every code is below 32; else 8
};
// From values and the zero point that makes them codes.
consteval CodeTable code_table(int zero_point, const int (&values)[16]) {
  CodeTable t{};
  t.bits = 5;
  for (int i = 0; i < 16; ++i) {
    t.code[i] = uint8_t(values[i] + zero_point);
    t.low[i] = t.code[i] & 15;
    t.high[i] = t.code[i] >> 4;
    if (t.code[i] >= 32) t.bits = 8;
  }
  return t;
}
// Twice E2M1; index bit 3 is the sign.
inline constexpr CodeTable kE2m1Table =
    code_table(12, {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12});
inline constexpr CodeTable kIq4Table =
    code_table(128, {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113});
// Magnitudes of the grids of IQ2 and IQ3, eight times the values of IQ1; index bit 3 is the sign.
inline constexpr CodeTable kIq2Table =
    code_table(128, {8, 25, 43, 0, 0, 0, 0, 0, -8, -25, -43, 0, 0, 0, 0, 0});
inline constexpr CodeTable kIq3xTable =
    code_table(128, {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62});
inline constexpr CodeTable kIq3sTable =
    code_table(128, {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15});
inline constexpr CodeTable kIq1Table = code_table(128, {-7, 1, 9, 0, 0, 0, 0, 0, -9, -1, 7, 0, 0, 0, 0, 0});

struct PackedForm {
  const char* name;  // stable: part of the cache key
  uint8_t bits;      // of a code: 2, 3, 4, 5, 6, 8; 0 = float tile
  uint8_t group;     // K per scale: 16 or 32; of a float tile 0, of E4M3 32 or 128
  int16_t zero_point;
  ScaleKind scale;
  BiasKind bias;
  Dtype dtype;                       // of a float tile
  const CodeTable* table = nullptr;  // of a form of 4 bits: what the indices stand for
  bool factors = false;
  bool gathered = false;
};

inline constexpr int kTileRows = 16;
inline constexpr int kRecordCols = 256;

inline constexpr PackedForm kPackedForms[] = {
    {"f32", 0, 0, 0, ScaleKind::kNone, BiasKind::kNone, Dtype::kF32},
    {"f16", 0, 0, 0, ScaleKind::kNone, BiasKind::kNone, Dtype::kF16},
    {"bf16", 0, 0, 0, ScaleKind::kNone, BiasKind::kNone, Dtype::kBF16},
    {"e4m3", 0, 128, 0, ScaleKind::kNone, BiasKind::kNone, Dtype::kE4M3},    // FP8
    {"e4m3g32", 0, 32, 0, ScaleKind::kNone, BiasKind::kNone, Dtype::kE4M3},  // MXFP8
    {"u4z8", 4, 32, 8, ScaleKind::kF16, BiasKind::kNone, Dtype::kF32},       // Q4_0
    {"u4b", 4, 32, 0, ScaleKind::kF16, BiasKind::kF16, Dtype::kF32},         // Q4_1
    {"u5z16", 5, 32, 16, ScaleKind::kF16, BiasKind::kNone, Dtype::kF32},     // Q5_0
    {"u5b", 5, 32, 0, ScaleKind::kF16, BiasKind::kF16, Dtype::kF32},         // Q5_1
    {"u8z128", 8, 32, 128, ScaleKind::kF16, BiasKind::kNone, Dtype::kF32},   // Q8_0
    {"u2k", 2, 16, 0, ScaleKind::kF16xU8, BiasKind::kF16xU8, Dtype::kF32},   // Q2_K
    {"u3k", 3, 16, 4, ScaleKind::kF32xS8, BiasKind::kNone, Dtype::kF32},     // Q3_K
    {"u4k", 4, 32, 0, ScaleKind::kF16xU8, BiasKind::kF16xU8, Dtype::kF32},   // Q4_K
    {"u5k", 5, 32, 0, ScaleKind::kF16xU8, BiasKind::kF16xU8, Dtype::kF32},   // Q5_K
    {"u6k", 6, 16, 32, ScaleKind::kF32xS8, BiasKind::kNone, Dtype::kF32},    // Q6_K
    {"u8b", 8, 32, 0, ScaleKind::kF16, BiasKind::kF16, Dtype::kF32},         // affine with f16 scales
    {"u4bb", 4, 32, 0, ScaleKind::kBF16, BiasKind::kBF16, Dtype::kF32},      // with bf16 scales
    {"u8bb", 8, 32, 0, ScaleKind::kBF16, BiasKind::kBF16, Dtype::kF32},
    {"e2m1", 4, 32, 12, ScaleKind::kBF16, BiasKind::kNone, Dtype::kF32, &kE2m1Table},     // MXFP4
    {"e2m1g16", 4, 16, 12, ScaleKind::kBF16, BiasKind::kNone, Dtype::kF32, &kE2m1Table},  // NVFP4
    {"e2m1g16f", 4, 16, 12, ScaleKind::kBF16, BiasKind::kNone, Dtype::kF32, &kE2m1Table,
     /*factors=*/true},  // NVFP4 with a global factor
    {"u4z8g", 4, 32, 8, ScaleKind::kF16, BiasKind::kNone, Dtype::kF32, nullptr, false,
     /*gathered=*/true},  // GPTQ with act-order
    {"u5z16g", 5, 32, 16, ScaleKind::kF16, BiasKind::kNone, Dtype::kF32, nullptr, false, true},
    {"iq4", 4, 32, 128, ScaleKind::kF16, BiasKind::kNone, Dtype::kF32, &kIq4Table},       // IQ4_NL
    {"iq4x", 4, 16, 128, ScaleKind::kF32xS8, BiasKind::kNone, Dtype::kF32, &kIq4Table},   // IQ4_XS
    {"iq2", 4, 16, 128, ScaleKind::kF32xS8, BiasKind::kNone, Dtype::kF32, &kIq2Table},    // IQ2_*
    {"iq3x", 4, 16, 128, ScaleKind::kF32xS8, BiasKind::kNone, Dtype::kF32, &kIq3xTable},  // IQ3_XXS
    {"iq3s", 4, 16, 128, ScaleKind::kF32xS8, BiasKind::kNone, Dtype::kF32, &kIq3sTable},  // IQ3_S
    {"iq1", 4, 16, 128, ScaleKind::kF32xS8, BiasKind::kNone, Dtype::kF32, &kIq1Table},    // IQ1_*
};

constexpr bool is_float(const PackedForm& f) {
  return f.bits == 0;
}
// The scale of a group is one 16-bit float.
constexpr bool has_half_scales(const PackedForm& f) {
  return f.scale == ScaleKind::kF16 || f.scale == ScaleKind::kBF16;
}
constexpr size_t round_up(size_t n, size_t to) {
  return (n + to - 1) / to * to;
}

// Bytes of the scale area of a record of `cols` columns (cols <= 256, a multiple of 32).
constexpr size_t scale_area_bytes(const PackedForm& f, int64_t cols) {
  const size_t groups = cols / f.group;
  switch (f.scale) {
    case ScaleKind::kF16:
    case ScaleKind::kBF16:
      return round_up(groups * (f.bias == BiasKind::kNone ? 32 : 64), 64);
    case ScaleKind::kF16xU8:
      return 64 + round_up(groups * 32, 64);
    case ScaleKind::kF32xS8:
      return 64 + round_up(groups * 16, 64);
    case ScaleKind::kNone:
      return 0;
  }
  return 0;
}
// Bytes of the code planes of 32 columns.
constexpr size_t code_bytes_per_32(const PackedForm& f) {
  return size_t(f.bits) * 64;
}
constexpr size_t record_bytes(const PackedForm& f, int64_t cols) {
  return scale_area_bytes(f, cols) + cols / 32 * code_bytes_per_32(f);
}
inline constexpr size_t kChannelFloats = kTileRows * 4;  // bytes of one f32 per channel
constexpr size_t tile_bytes(const PackedForm& f, int64_t cols) {
  if (is_float(f)) {
    const size_t scales = f.group == 0 ? 0 : (cols + f.group - 1) / f.group * kChannelFloats;
    return scales + round_up(cols, 4) * kTileRows * dtype_bytes(f.dtype);
  }
  const int64_t rest = cols % kRecordCols;
  return cols / kRecordCols * record_bytes(f, kRecordCols) + (rest ? record_bytes(f, rest) : 0) +
         (f.factors ? kChannelFloats : 0);
}
constexpr int64_t tile_count(int64_t rows) {
  return (rows + kTileRows - 1) / kTileRows;
}

constexpr size_t matrix_bytes(const PackedForm& f, int64_t rows, int64_t cols) {
  return tile_bytes(f, cols) * tile_count(rows) + (f.gathered ? round_up(cols * 4, 64) : 0);
}

// A borrowed packed matrix. data is 64-byte aligned.
struct PackedMatrix {
  const PackedForm* form = nullptr;
  int64_t rows = 0;  // output channels
  int64_t cols = 0;  // K
  const std::byte* data = nullptr;

  size_t tile_size() const { return tile_bytes(*form, cols); }
  size_t bytes() const { return matrix_bytes(*form, rows, cols); }
  // [cols] of a gathered form, else nullptr.
  const int32_t* columns() const {
    if (!form->gathered) return nullptr;
    return reinterpret_cast<const int32_t*>(data + tile_size() * tile_count(rows));
  }
};

const PackedForm* find_packed_form(const char* name);  // nullptr if unknown

}  // namespace invar
