#include "format/block_codecs.h"

#include <cstdint>
#include <cstring>

namespace invar {
namespace {

uint8_t u8(const std::byte* p) {
  return static_cast<uint8_t>(*p);
}
uint16_t u16(const std::byte* p) {
  return static_cast<uint16_t>(u8(p) | u8(p + 1) << 8);
}
uint32_t u32(const std::byte* p) {
  return u16(p) | uint32_t{u16(p + 2)} << 16;
}
// The sign of an f16 flipped: K-quants subtract their minimum, the packed form adds its bias. Zero stays +0.
uint16_t negated_f16(uint16_t h) {
  return (h & 0x7FFF) == 0 ? 0 : h ^ 0x8000;
}

// n bytes -> n codes from the low nibbles, then n from the high ones.
template <int n>
void nibbles(const std::byte* p, uint8_t* code) {
  for (int i = 0; i < n; ++i)
    code[i] = u8(p + i) & 15;
  for (int i = 0; i < n; ++i)
    code[n + i] = u8(p + i) >> 4;
}

// Bit i of a 32-bit word becomes bit 4 of code[i].
void add_fifth_bits(uint32_t bits, uint8_t* code) {
  for (int byte = 0; byte < 4; ++byte) {
    const uint8_t b = static_cast<uint8_t>(bits >> (8 * byte));
    for (int i = 0; i < 8; ++i)
      code[8 * byte + i] |= static_cast<uint8_t>(((b >> i) & 1) << 4);
  }
}

// 128 two-bit codes from 32 bytes: bit pair 0 of all bytes, then pair 1, 2, 3.
void bit_pairs(const std::byte* p, uint8_t* code) {
  for (int pair = 0; pair < 4; ++pair)
    for (int i = 0; i < 32; ++i)
      code[32 * pair + i] = (u8(p + i) >> (2 * pair)) & 3;
}

// The 12 bytes of Q4_K and Q5_K: eight 6-bit scales and eight 6-bit minima.
void six_bit_scales(const std::byte* s, int16_t* scale, uint8_t* minimum) {
  for (int j = 0; j < 4; ++j) {
    scale[j] = u8(s + j) & 63;
    minimum[j] = u8(s + j + 4) & 63;
    scale[j + 4] = static_cast<int16_t>((u8(s + j + 8) & 15) | (u8(s + j) >> 6) << 4);
    minimum[j + 4] = static_cast<uint8_t>((u8(s + j + 8) >> 4) | (u8(s + j + 4) >> 6) << 4);
  }
}

}  // namespace

void unpack_q4_0(const std::byte* block, UnpackedBlock* out) {
  out->d[0] = u16(block);
  nibbles<16>(block + 2, out->code);
}

void unpack_q4_1(const std::byte* block, UnpackedBlock* out) {
  out->d[0] = u16(block);
  out->m[0] = u16(block + 2);
  nibbles<16>(block + 4, out->code);
}

void unpack_q5_0(const std::byte* block, UnpackedBlock* out) {
  out->d[0] = u16(block);
  nibbles<16>(block + 6, out->code);
  add_fifth_bits(u32(block + 2), out->code);
}

void unpack_q5_1(const std::byte* block, UnpackedBlock* out) {
  out->d[0] = u16(block);
  out->m[0] = u16(block + 2);
  nibbles<16>(block + 8, out->code);
  add_fifth_bits(u32(block + 4), out->code);
}

void unpack_q8_0(const std::byte* block, UnpackedBlock* out) {
  out->d[0] = u16(block);
  for (int i = 0; i < 32; ++i)
    out->code[i] = u8(block + 2 + i) ^ 0x80;  // signed code + 128
}

// scales[16] (low nibble scale, high nibble minimum), qs[64], d, dmin.
void unpack_q2_k(const std::byte* block, UnpackedBlock* out) {
  out->d[0] = u16(block + 80);
  out->m[0] = negated_f16(u16(block + 82));
  for (int g = 0; g < 16; ++g) {
    out->sub[g] = u8(block + g) & 15;
    out->sub_m[g] = u8(block + g) >> 4;
  }
  bit_pairs(block + 16, out->code);
  bit_pairs(block + 48, out->code + 128);
}

// hmask[32], qs[64], scales[12], d.
void unpack_q3_k(const std::byte* block, UnpackedBlock* out) {
  out->d[0] = u16(block + 108);
  const std::byte* s = block + 96;
  for (int g = 0; g < 16; ++g) {
    const int low = g < 8 ? u8(s + g) & 15 : u8(s + g - 8) >> 4;
    const int high = (u8(s + 8 + g % 4) >> (2 * (g / 4))) & 3;
    out->sub[g] = static_cast<int16_t>((low | high << 4) - 32);
  }
  bit_pairs(block + 32, out->code);
  bit_pairs(block + 64, out->code + 128);
  for (int bit = 0; bit < 8; ++bit)
    for (int i = 0; i < 32; ++i)
      out->code[32 * bit + i] |= static_cast<uint8_t>(((u8(block + i) >> bit) & 1) << 2);
}

// d, dmin, scales[12], qs[128].
void unpack_q4_k(const std::byte* block, UnpackedBlock* out) {
  out->d[0] = u16(block);
  out->m[0] = negated_f16(u16(block + 2));
  six_bit_scales(block + 4, out->sub, out->sub_m);
  for (int pair = 0; pair < 4; ++pair)
    nibbles<32>(block + 16 + 32 * pair, out->code + 64 * pair);
}

// d, dmin, scales[12], qh[32], qs[128].
void unpack_q5_k(const std::byte* block, UnpackedBlock* out) {
  out->d[0] = u16(block);
  out->m[0] = negated_f16(u16(block + 2));
  six_bit_scales(block + 4, out->sub, out->sub_m);
  for (int pair = 0; pair < 4; ++pair)
    nibbles<32>(block + 48 + 32 * pair, out->code + 64 * pair);
  for (int g = 0; g < 8; ++g)
    for (int i = 0; i < 32; ++i)
      out->code[32 * g + i] |= static_cast<uint8_t>(((u8(block + 16 + i) >> g) & 1) << 4);
}

// ql[128], qh[64], int8 scales[16], d.
void unpack_q6_k(const std::byte* block, UnpackedBlock* out) {
  out->d[0] = u16(block + 208);
  for (int g = 0; g < 16; ++g)
    out->sub[g] = static_cast<int8_t>(u8(block + 192 + g));
  for (int half = 0; half < 2; ++half) {
    const std::byte *low = block + 64 * half, *high = block + 128 + 32 * half;
    uint8_t* code = out->code + 128 * half;
    nibbles<64>(low, code);
    for (int quarter = 0; quarter < 4; ++quarter)
      for (int i = 0; i < 32; ++i)
        code[32 * quarter + i] |= static_cast<uint8_t>(((u8(high + i) >> (2 * quarter)) & 3) << 4);
  }
}

}  // namespace invar
