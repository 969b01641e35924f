#include "format/block_codecs.h"

#include <cstdint>
#include <cstring>

namespace invar {
namespace {

// A copy of the block: the compiler knows that writing codes does not change it, and vectorizes.
template <int n>
struct Block {
  explicit Block(const std::byte* p) { std::memcpy(bytes, p, n); }
  const uint8_t* at(int i) const { return bytes + i; }
  uint16_t u16(int i) const { return static_cast<uint16_t>(bytes[i] | bytes[i + 1] << 8); }
  uint32_t u32(int i) const { return u16(i) | uint32_t{u16(i + 2)} << 16; }

  uint8_t bytes[n];
};
// The sign of an f16 flipped: K-quants subtract their minimum, the packed form adds its bias. Zero stays +0.
uint16_t negated_f16(uint16_t h) {
  return (h & 0x7FFF) == 0 ? 0 : h ^ 0x8000;
}

// n bytes -> n codes from the low nibbles, then n from the high ones.
template <int n>
void nibbles(const uint8_t* p, uint8_t* code) {
  for (int i = 0; i < n; ++i)
    code[i] = p[i] & 15;
  for (int i = 0; i < n; ++i)
    code[n + i] = p[i] >> 4;
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
void bit_pairs(const uint8_t* p, uint8_t* code) {
  for (int pair = 0; pair < 4; ++pair)
    for (int i = 0; i < 32; ++i)
      code[32 * pair + i] = (p[i] >> (2 * pair)) & 3;
}

// The 12 bytes of Q4_K and Q5_K: eight 6-bit scales and eight 6-bit minima.
void six_bit_scales(const uint8_t* s, int16_t* scale, uint8_t* minimum) {
  for (int j = 0; j < 4; ++j) {
    scale[j] = s[j] & 63;
    minimum[j] = s[j + 4] & 63;
    scale[j + 4] = static_cast<int16_t>((s[j + 8] & 15) | (s[j] >> 6) << 4);
    minimum[j + 4] = static_cast<uint8_t>((s[j + 8] >> 4) | (s[j + 4] >> 6) << 4);
  }
}

}  // namespace

void unpack_q4_0(const std::byte* block, UnpackedBlock* out) {
  const Block<18> b(block);
  out->d[0] = b.u16(0);
  nibbles<16>(b.at(2), out->code);
}

void unpack_q4_1(const std::byte* block, UnpackedBlock* out) {
  const Block<20> b(block);
  out->d[0] = b.u16(0);
  out->m[0] = b.u16(2);
  nibbles<16>(b.at(4), out->code);
}

void unpack_q5_0(const std::byte* block, UnpackedBlock* out) {
  const Block<22> b(block);
  out->d[0] = b.u16(0);
  nibbles<16>(b.at(6), out->code);
  add_fifth_bits(b.u32(2), out->code);
}

void unpack_q5_1(const std::byte* block, UnpackedBlock* out) {
  const Block<24> b(block);
  out->d[0] = b.u16(0);
  out->m[0] = b.u16(2);
  nibbles<16>(b.at(8), out->code);
  add_fifth_bits(b.u32(4), out->code);
}

void unpack_q8_0(const std::byte* block, UnpackedBlock* out) {
  const Block<34> b(block);
  out->d[0] = b.u16(0);
  for (int i = 0; i < 32; ++i)
    out->code[i] = b.bytes[2 + i] ^ 0x80;  // signed code + 128
}

// scales[16] (low nibble scale, high nibble minimum), qs[64], d, dmin.
void unpack_q2_k(const std::byte* block, UnpackedBlock* out) {
  const Block<84> b(block);
  out->d[0] = b.u16(80);
  out->m[0] = negated_f16(b.u16(82));
  for (int g = 0; g < 16; ++g) {
    out->sub[g] = b.bytes[g] & 15;
    out->sub_m[g] = b.bytes[g] >> 4;
  }
  bit_pairs(b.at(16), out->code);
  bit_pairs(b.at(48), out->code + 128);
}

// hmask[32], qs[64], scales[12], d.
void unpack_q3_k(const std::byte* block, UnpackedBlock* out) {
  const Block<110> b(block);
  out->d[0] = b.u16(108);
  const uint8_t* s = b.at(96);
  for (int g = 0; g < 16; ++g) {
    const int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
    const int high = (s[8 + g % 4] >> (2 * (g / 4))) & 3;
    out->sub[g] = static_cast<int16_t>((low | high << 4) - 32);
  }
  bit_pairs(b.at(32), out->code);
  bit_pairs(b.at(64), out->code + 128);
  for (int bit = 0; bit < 8; ++bit)
    for (int i = 0; i < 32; ++i)
      out->code[32 * bit + i] |= static_cast<uint8_t>(((b.bytes[i] >> bit) & 1) << 2);
}

// d, dmin, scales[12], qs[128].
void unpack_q4_k(const std::byte* block, UnpackedBlock* out) {
  const Block<144> b(block);
  out->d[0] = b.u16(0);
  out->m[0] = negated_f16(b.u16(2));
  six_bit_scales(b.at(4), out->sub, out->sub_m);
  for (int pair = 0; pair < 4; ++pair)
    nibbles<32>(b.at(16 + 32 * pair), out->code + 64 * pair);
}

// d, dmin, scales[12], qh[32], qs[128].
void unpack_q5_k(const std::byte* block, UnpackedBlock* out) {
  const Block<176> b(block);
  out->d[0] = b.u16(0);
  out->m[0] = negated_f16(b.u16(2));
  six_bit_scales(b.at(4), out->sub, out->sub_m);
  for (int pair = 0; pair < 4; ++pair)
    nibbles<32>(b.at(48 + 32 * pair), out->code + 64 * pair);
  for (int g = 0; g < 8; ++g)
    for (int i = 0; i < 32; ++i)
      out->code[32 * g + i] |= static_cast<uint8_t>(((b.bytes[16 + i] >> g) & 1) << 4);
}

// ql[128], qh[64], int8 scales[16], d.
void unpack_q6_k(const std::byte* block, UnpackedBlock* out) {
  const Block<210> b(block);
  out->d[0] = b.u16(208);
  for (int g = 0; g < 16; ++g)
    out->sub[g] = static_cast<int8_t>(b.bytes[192 + g]);
  for (int half = 0; half < 2; ++half) {
    const uint8_t *low = b.at(64 * half), *high = b.at(128 + 32 * half);
    uint8_t* code = out->code + 128 * half;
    nibbles<64>(low, code);
    for (int quarter = 0; quarter < 4; ++quarter)
      for (int i = 0; i < 32; ++i)
        code[32 * quarter + i] |= static_cast<uint8_t>(((high[i] >> (2 * quarter)) & 3) << 4);
  }
}

}  // namespace invar
