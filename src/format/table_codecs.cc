#include "format/table_codecs.h"

#include <bit>

#include "format/codec_parts.h"
#include "format/iq_grids.h"
#include "tensor/float16.h"

namespace invar {
namespace {

// The d of two-level types times a power of two.
void put_head(const uint8_t* p, float factor, UnpackedBlock* out) {
  out->head = f16_to_f32(scale_at(p)) * factor;
}

// Eight indices: magnitudes from a point of a grid, bit 3 from the signs.
void put_eight(int point, int signs, Codes code) {
  for (int i = 0; i < 8; ++i)
    code[i] = static_cast<uint8_t>((point >> (2 * i) & 3) | (signs >> i & 1) << 3);
}
// The same from two points of four.
void put_twice_four(int first, int second, int signs, Codes code) {
  for (int i = 0; i < 4; ++i) {
    code[i] = static_cast<uint8_t>((first >> (4 * i) & 7) | (signs >> i & 1) << 3);
    code[i + 4] = static_cast<uint8_t>((second >> (4 * i) & 7) | (signs >> (i + 4) & 1) << 3);
  }
}
// Seven stored signs; the eighth makes the number of minus signs even.
int eight_signs(uint32_t seven) {
  seven &= 127;
  return static_cast<int>(seven | (std::popcount(seven) & 1u) << 7);
}

}  // namespace

// E8M0 exponent, qs[16].
void unpack_mxfp4(const std::byte* __restrict source, int blocks, UnpackedBlock* __restrict out) {
  for (int i = 0; i < blocks; ++i) {
    const uint8_t* b = bytes_of(source) + 17 * i;
    out->d[i] = power_of_two(b[0], -1);  // the table is doubled
    nibbles<16>(b + 1, out->code + 32 * i);
  }
}

// Four E4M3 scales, qs[32].
void unpack_nvfp4(const std::byte* __restrict source, int blocks, UnpackedBlock* __restrict out) {
  for (int i = 0; i < blocks; ++i) {
    const uint8_t* b = bytes_of(source) + 36 * i;
    for (int g = 0; g < 4; ++g) {
      out->d[4 * i + g] = half_of_e4m3(b[g]);
      nibbles<8>(b + 4 + 8 * g, out->code + 64 * i + 16 * g);
    }
  }
}

void unpack_iq4_nl(const std::byte* __restrict source, int blocks, UnpackedBlock* __restrict out) {
  for (int i = 0; i < blocks; ++i) {
    const uint8_t* b = bytes_of(source) + 18 * i;
    out->d[i] = scale_at(b);
    nibbles<16>(b + 2, out->code + 32 * i);
  }
}

// d, high bits of scales[2], low nibbles of scales[4], qs[128].
void unpack_iq4_xs(const std::byte* __restrict source, int, UnpackedBlock* __restrict out) {
  const uint8_t* b = bytes_of(source);
  put_head(b, 1, out);
  const int high = u16_at(b + 2);
  for (int g = 0; g < 8; ++g) {
    const int scale = (b[4 + g / 2] >> (4 * (g % 2)) & 15) | (high >> (2 * g) & 3) << 4;
    out->sub[2 * g] = out->sub[2 * g + 1] = static_cast<int16_t>(scale - 32);
    nibbles<16>(b + 8 + 16 * g, out->code + 32 * g);
  }
}

// The scales of IQ2 and IQ3_XXS are d * (s + 1/2) / 4 and / 2: d / 8 and d / 4 times 2s + 1.

// d; per 32: four points, then a word of four times seven signs and the scale.
void unpack_iq2_xxs(const std::byte* __restrict source, int, UnpackedBlock* __restrict out) {
  const uint8_t* b = bytes_of(source);
  put_head(b, 0.125f, out);
  for (int g = 0; g < 8; ++g) {
    const uint8_t* p = b + 2 + 8 * g;
    const uint32_t word = u32_at(p + 4);
    out->sub[2 * g] = out->sub[2 * g + 1] = static_cast<int16_t>(2 * (word >> 28) + 1);
    for (int i = 0; i < 4; ++i)
      put_eight(kIq2XxsGrid[p[i]], eight_signs(word >> (7 * i)), out->code + 32 * g + 8 * i);
  }
}

// d; 32 times nine bits of a point and seven signs; scales[8].
void unpack_iq2_xs(const std::byte* __restrict source, int, UnpackedBlock* __restrict out) {
  const uint8_t* b = bytes_of(source);
  put_head(b, 0.125f, out);
  for (int g = 0; g < 16; ++g)
    out->sub[g] = static_cast<int16_t>(2 * (b[66 + g / 2] >> (4 * (g % 2)) & 15) + 1);
  for (int i = 0; i < 32; ++i) {
    const uint32_t word = u16_at(b + 2 + 2 * i);
    put_eight(kIq2XsGrid[word & 511], eight_signs(word >> 9), out->code + 8 * i);
  }
}

// d, points[32], signs[32], high bits of points[8], scales[8].
void unpack_iq2_s(const std::byte* __restrict source, int, UnpackedBlock* __restrict out) {
  const uint8_t* b = bytes_of(source);
  put_head(b, 0.125f, out);
  for (int g = 0; g < 16; ++g)
    out->sub[g] = static_cast<int16_t>(2 * (b[74 + g / 2] >> (4 * (g % 2)) & 15) + 1);
  for (int i = 0; i < 32; ++i) {
    const int point = b[2 + i] | (b[66 + i / 4] >> (2 * (i % 4)) & 3) << 8;
    put_eight(kIq2SGrid[point], b[34 + i], out->code + 8 * i);
  }
}

// d, points[64]; per 32: a word of four times seven signs and the scale.
void unpack_iq3_xxs(const std::byte* __restrict source, int, UnpackedBlock* __restrict out) {
  const uint8_t* b = bytes_of(source);
  put_head(b, 0.25f, out);
  for (int g = 0; g < 8; ++g) {
    const uint32_t word = u32_at(b + 66 + 4 * g);
    out->sub[2 * g] = out->sub[2 * g + 1] = static_cast<int16_t>(2 * (word >> 28) + 1);
    for (int i = 0; i < 4; ++i) {
      const uint8_t* p = b + 2 + 8 * g + 2 * i;
      put_twice_four(kIq3XxsGrid[p[0]], kIq3XxsGrid[p[1]], eight_signs(word >> (7 * i)),
                     out->code + 32 * g + 8 * i);
    }
  }
}

// d, points[64], ninth bits of points[8], signs[32], scales[4].
void unpack_iq3_s(const std::byte* __restrict source, int, UnpackedBlock* __restrict out) {
  const uint8_t* b = bytes_of(source);
  put_head(b, 1, out);
  for (int g = 0; g < 8; ++g) {
    const int scale = b[106 + g / 2] >> (4 * (g % 2)) & 15;
    out->sub[2 * g] = out->sub[2 * g + 1] = static_cast<int16_t>(2 * scale + 1);
    for (int i = 0; i < 4; ++i) {
      const int at = 8 * g + 2 * i, high = b[66 + g] >> (2 * i);
      put_twice_four(kIq3SGrid[b[2 + at] | (high & 1) << 8], kIq3SGrid[b[3 + at] | (high >> 1 & 1) << 8],
                     b[74 + 4 * g + i], out->code + 8 * (4 * g + i));
    }
  }
}

// IQ1: d * (2s + 1) * (-1, 0 or 1, and an eighth more or less); the table holds eight times the last factor.

// d, points[32]; per 32: a word of four times three high bits, the scale and the sign of the eighth.
void unpack_iq1_s(const std::byte* __restrict source, int, UnpackedBlock* __restrict out) {
  const uint8_t* b = bytes_of(source);
  put_head(b, 0.125f, out);
  for (int g = 0; g < 8; ++g) {
    const int word = u16_at(b + 34 + 2 * g);
    out->sub[2 * g] = out->sub[2 * g + 1] = static_cast<int16_t>(2 * (word >> 12 & 7) + 1);
    for (int i = 0; i < 4; ++i) {
      const int point = b[2 + 4 * g + i] | (word >> (3 * i) & 7) << 8;
      put_eight(kIq1Grid[point], word >> 15 ? 0xFF : 0, out->code + 32 * g + 8 * i);
    }
  }
}

// points[32]; per 16: two nibbles of three high bits and the sign of the eighth; four words of four scales
// and a nibble of d.
void unpack_iq1_m(const std::byte* __restrict source, int, UnpackedBlock* __restrict out) {
  const uint8_t* b = bytes_of(source);
  int d = 0;
  for (int i = 0; i < 4; ++i) {
    const int word = u16_at(b + 48 + 2 * i);
    d |= (word >> 12) << (4 * i);
    for (int j = 0; j < 4; ++j)
      out->sub[4 * i + j] = static_cast<int16_t>(2 * (word >> (3 * j) & 7) + 1);
  }
  const uint8_t scale[2] = {static_cast<uint8_t>(d & 255), static_cast<uint8_t>(d >> 8)};
  put_head(scale, 0.125f, out);
  for (int i = 0; i < 32; ++i) {
    const int nibble = b[32 + i / 2] >> (4 * (i % 2)) & 15;
    put_eight(kIq1Grid[b[i] | (nibble & 7) << 8], nibble >> 3 ? 0xFF : 0, out->code + 8 * i);
  }
}

namespace {

// d * (code - 1): a scale of d and a bias of -d.
void put_ternary_scales(const uint8_t* d, UnpackedBlock* out) {
  out->d[0] = scale_at(d);
  out->m[0] = negated_scale_at(d);
  for (int g = 0; g < 16; ++g)
    out->sub[g] = out->sub_m[g] = 1;
}

// `digits` times n codes from n bytes, each a fraction of 256 in base 3, the first digit first.
template <int n>
uint8_t* put_digits(Source p, int digits, uint8_t* code) {
  int power = 1;
  for (int digit = 0; digit < digits; ++digit, power *= 3, code += n)
    for (int i = 0; i < n; ++i)
      code[i] = static_cast<uint8_t>(((p[i] * power & 255) * 3) >> 8);
  return code;
}

}  // namespace

// Five digits per byte: qs[32], qs[16]; four: qh[4]; d.
void unpack_tq1_0(const std::byte* __restrict source, int, UnpackedBlock* __restrict out) {
  const uint8_t* b = bytes_of(source);
  put_ternary_scales(b + 52, out);
  put_digits<4>(b + 48, 4, put_digits<16>(b + 32, 5, put_digits<32>(b, 5, out->code)));
}

// qs[64], d.
void unpack_tq2_0(const std::byte* __restrict source, int, UnpackedBlock* __restrict out) {
  const uint8_t* b = bytes_of(source);
  put_ternary_scales(b + 64, out);
  bit_pairs(b, out->code);
  bit_pairs(b + 32, out->code + 128);
}

}  // namespace invar
