#include "format/plane_codecs.h"

#include "format/codec_parts.h"
#include "tensor/float16.h"

namespace invar {
namespace {

// The first byte of codes of a row.
const uint8_t* row_codes(const SourcePlanes& m, int64_t row, int bits) {
  return bytes_of(m.data.data()) + row * (m.cols / 8 * bits);
}

// 32 codes of `bits` from a stream that begins at a byte, lowest bits first.
template <int bits>
void stream_codes(Source p, Codes code) {
  static_assert(bits <= 8);
  constexpr int mask = (1 << bits) - 1;
  for (int i = 0; i < 32; i += 8) {  // eight codes are `bits` bytes
    uint64_t word = 0;
    for (int b = 0; b < bits; ++b)
      word |= static_cast<uint64_t>(p[i / 8 * bits + b]) << (8 * b);
    for (int j = 0; j < 8; ++j)
      code[i + j] = static_cast<uint8_t>(word >> (bits * j) & mask);
  }
}

// The scale of a group as 16 bits within the limits.
template <bool bf16>
uint16_t half_scale(const uint8_t* p) {
  return bf16 ? bounded_bf16(u16_at(p)) : scale_at(p);
}

// Scale index of a 32-column group.
int64_t scale_index(const SourcePlanes& m, int64_t row, int64_t col) {
  return row * m.groups() + col / m.group;
}

int word_at(std::span<const std::byte> bytes, int64_t index) {
  return static_cast<int>(u32_at(bytes_of(bytes.data()) + 4 * index));
}
int nibble(int word, int64_t i) {
  return static_cast<int>(static_cast<uint32_t>(word) >> (4 * i)) & 15;
}

// GPTQ: words of eight columns' codes, [cols / 8, rows]; zero points in words of eight rows, [groups, rows /
// 8].
int64_t stored_column(const SourcePlanes& m, int64_t col) {
  return m.order.empty() ? col : m.order[static_cast<size_t>(col)];
}
int gptq_code(const SourcePlanes& m, int64_t row, int64_t col) {
  const int64_t at = stored_column(m, col);
  return nibble(word_at(m.data, at / 8 * m.rows + row), at % 8);
}
int64_t gptq_group(const SourcePlanes& m, int64_t col) {
  return m.order.empty() ? col / m.group : word_at(m.columns, stored_column(m, col));
}
int gptq_zero(const SourcePlanes& m, int64_t row, int64_t group) {
  return nibble(word_at(m.offsets, group * (m.rows / 8) + row / 8), row % 8) + m.zero_shift;
}
// AWQ: words of eight rows, [cols, rows / 8] and [groups, rows / 8], with the even rows first.
int awq_nibble(std::span<const std::byte> bytes, const SourcePlanes& m, int64_t row, int64_t line) {
  const int64_t in_word = row % 8;
  return nibble(word_at(bytes, line * (m.rows / 8) + row / 8), in_word / 2 + in_word % 2 * 4);
}
// Scales [groups, rows].
const uint8_t* int4_scale(const SourcePlanes& m, int64_t row, int64_t group) {
  return bytes_of(m.scales.data()) + 2 * (group * m.rows + row);
}

}  // namespace

template <int bits, bool bf16>
void unpack_affine(const SourcePlanes& m, int64_t row, int64_t col, int cols, UnpackedBlock* out) {
  const uint8_t* codes = row_codes(m, row, bits) + col / 8 * bits;
  const uint8_t *scales = bytes_of(m.scales.data()), *biases = bytes_of(m.offsets.data());
  for (int g = 0; g < cols / 32; ++g) {
    const int64_t at = 2 * scale_index(m, row, col + 32 * g);
    out->d[g] = half_scale<bf16>(scales + at);
    out->m[g] = half_scale<bf16>(biases + at);
    stream_codes<bits>(codes + 4 * bits * g, out->code + 32 * g);
  }
}
#define INVAR_AFFINE(bits)                                                                             \
  template void unpack_affine<bits, true>(const SourcePlanes&, int64_t, int64_t, int, UnpackedBlock*); \
  template void unpack_affine<bits, false>(const SourcePlanes&, int64_t, int64_t, int, UnpackedBlock*);
INVAR_AFFINE(2)
INVAR_AFFINE(3)
INVAR_AFFINE(4)
INVAR_AFFINE(5)
INVAR_AFFINE(6)
INVAR_AFFINE(8)
#undef INVAR_AFFINE

// E8M0 scales; the table is doubled.
void unpack_mlx_mxfp4(const SourcePlanes& m, int64_t row, int64_t col, int cols, UnpackedBlock* out) {
  for (int g = 0; g < cols / 32; ++g) {
    const int64_t k = col + 32 * g;
    out->d[g] = power_of_two(bytes_of(m.scales.data())[scale_index(m, row, k)], -1);
    stream_codes<4>(row_codes(m, row, 4) + k / 2, out->code + 32 * g);
  }
}

// E4M3 scales per 16 columns.
void unpack_mlx_nvfp4(const SourcePlanes& m, int64_t row, int64_t col, int cols, UnpackedBlock* out) {
  for (int g = 0; g < cols / 16; ++g) {
    const float scale = e4m3_to_f32(bytes_of(m.scales.data())[scale_index(m, row, col + 16 * g)]) * 0.5f;
    out->d[g] = scale == 0 ? 0 : static_cast<uint16_t>(float_bits(scale) >> 16);
  }
  for (int g = 0; g < cols / 32; ++g)
    stream_codes<4>(row_codes(m, row, 4) + (col + 32 * g) / 2, out->code + 32 * g);
}

void unpack_nvfp4_rows(const SourcePlanes& m, int64_t row, int64_t col, int cols, UnpackedBlock* out) {
  const uint8_t* blocks = bytes_of(m.data.data()) + row * (m.cols / 64) * 36;
  for (int g = 0; g < cols / 16; ++g) {
    const int64_t at = col / 16 + g;
    const uint8_t* b = blocks + at / 4 * 36;
    out->d[g] = half_of_e4m3(b[at % 4]);
    nibbles<8>(b + 4 + 8 * (at % 4), out->code + 16 * g);
  }
}

void unpack_mlx_mxfp8(const SourcePlanes& m, int64_t row, int64_t col, int cols, UnpackedBlock* out) {
  std::memcpy(out->code, row_codes(m, row, 8) + col, static_cast<size_t>(cols));
  out->head = bf16_to_f32(power_of_two(bytes_of(m.scales.data())[scale_index(m, row, col)], 0));
}

void unpack_fp8(const SourcePlanes& m, int64_t row, int64_t col, int cols, UnpackedBlock* out) {
  std::memcpy(out->code, row_codes(m, row, 8) + col, static_cast<size_t>(cols));
  const uint8_t* scales = bytes_of(m.scales.data());
  const int64_t at = row / m.group_rows * m.groups() + col / m.group;
  out->head = m.wide_scales ? bits_float(u32_at(scales + 4 * at)) : bf16_to_f32(u16_at(scales + 2 * at));
}

void unpack_gptq_symmetric(const SourcePlanes& m, int64_t row, int64_t col, int cols, UnpackedBlock* out) {
  for (int g = 0; g < cols / 32; ++g) {
    const int64_t group = gptq_group(m, col + 32 * g);
    // Another zero point than 8 contradicts the configuration: infinity makes it an error.
    out->d[g] = gptq_zero(m, row, group) == 8 ? scale_at(int4_scale(m, row, group)) : 0x7C00;
  }
  for (int k = 0; k < cols; ++k)
    out->code[k] = static_cast<uint8_t>(gptq_code(m, row, col + k));
}

void unpack_gptq(const SourcePlanes& m, int64_t row, int64_t col, int cols, UnpackedBlock* out) {
  for (int g = 0; g < cols / 32; ++g) {
    const int64_t k0 = col + 32 * g, group = gptq_group(m, k0);
    const int shift = 16 - gptq_zero(m, row, group);
    out->d[g] = scale_at(int4_scale(m, row, group));
    for (int k = 0; k < 32; ++k)
      out->code[32 * g + k] = static_cast<uint8_t>(gptq_code(m, row, k0 + k) + shift);
  }
}

void unpack_awq(const SourcePlanes& m, int64_t row, int64_t col, int cols, UnpackedBlock* out) {
  for (int g = 0; g < cols / 32; ++g) {
    const int64_t k0 = col + 32 * g, group = k0 / m.group;
    const int shift = 16 - awq_nibble(m.offsets, m, row, group);
    out->d[g] = scale_at(int4_scale(m, row, group));
    for (int k = 0; k < 32; ++k)
      out->code[32 * g + k] = static_cast<uint8_t>(awq_nibble(m.data, m, row, k0 + k) + shift);
  }
}

}  // namespace invar
