#include "format/block_codecs.h"

#include <cstdint>
#include <cstring>

#include "format/codec_parts.h"
#include "tensor/float16.h"

namespace invar {
namespace {

// Bit i of four bytes becomes bit 4 of code[i].
void add_fifth_bits(Source bits, Codes code) {
  typedef uint8_t Bytes __attribute__((vector_size(16)));
  const Bytes each = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const Bytes all = {bits[0], bits[1], bits[2], bits[3]};
  const Bytes repeated[2] = {
      __builtin_shufflevector(all, all, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
      __builtin_shufflevector(all, all, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3)};
  for (int half = 0; half < 2; ++half) {
    Bytes codes;
    std::memcpy(&codes, code + 16 * half, 16);
    codes |= reinterpret_cast<Bytes>((repeated[half] & each) == each) & 16;
    std::memcpy(code + 16 * half, &codes, 16);
  }
}

// 256 one-bit additions from 32 bytes: bit b of byte i becomes bit `to` of code[32b + i].
template <int to>
void add_bits(Source p, Codes code) {
  for (int bit = 0; bit < 8; ++bit)
    for (int i = 0; i < 32; ++i)
      code[32 * bit + i] |= static_cast<uint8_t>(((p[i] >> bit) & 1) << to);
}

// The 12 bytes of Q4_K and Q5_K: eight 6-bit scales and eight 6-bit minima.
void six_bit_scales(Source s, UnpackedBlock* __restrict out) {
  for (int j = 0; j < 4; ++j) {
    out->sub[j] = s[j] & 63;
    out->sub_m[j] = s[j + 4] & 63;
    out->sub[j + 4] = static_cast<int16_t>((s[j + 8] & 15) | (s[j] >> 6) << 4);
    out->sub_m[j + 4] = static_cast<uint8_t>((s[j + 8] >> 4) | (s[j + 4] >> 6) << 4);
  }
}

}  // namespace

void unpack_q4_0(const std::byte* __restrict source, int blocks, UnpackedBlock* __restrict out) {
  for (int i = 0; i < blocks; ++i) {
    const uint8_t* b = bytes_of(source) + 18 * i;
    out->d[i] = scale_at(b);
    nibbles<16>(b + 2, out->code + 32 * i);
  }
}

void unpack_q4_1(const std::byte* __restrict source, int blocks, UnpackedBlock* __restrict out) {
  for (int i = 0; i < blocks; ++i) {
    const uint8_t* b = bytes_of(source) + 20 * i;
    out->d[i] = scale_at(b);
    out->m[i] = scale_at(b + 2);
    nibbles<16>(b + 4, out->code + 32 * i);
  }
}

void unpack_q5_0(const std::byte* __restrict source, int blocks, UnpackedBlock* __restrict out) {
  for (int i = 0; i < blocks; ++i) {
    const uint8_t* b = bytes_of(source) + 22 * i;
    out->d[i] = scale_at(b);
    nibbles<16>(b + 6, out->code + 32 * i);
    add_fifth_bits(b + 2, out->code + 32 * i);
  }
}

void unpack_q5_1(const std::byte* __restrict source, int blocks, UnpackedBlock* __restrict out) {
  for (int i = 0; i < blocks; ++i) {
    const uint8_t* b = bytes_of(source) + 24 * i;
    out->d[i] = scale_at(b);
    out->m[i] = scale_at(b + 2);
    nibbles<16>(b + 8, out->code + 32 * i);
    add_fifth_bits(b + 4, out->code + 32 * i);
  }
}

void unpack_q8_0(const std::byte* __restrict source, int blocks, UnpackedBlock* __restrict out) {
  for (int i = 0; i < blocks; ++i) {
    const uint8_t* b = bytes_of(source) + 34 * i;
    out->d[i] = scale_at(b);
    for (int k = 0; k < 32; ++k)
      out->code[32 * i + k] = b[2 + k] ^ 0x80;  // signed code + 128
  }
}

// scales[16] (low nibble scale, high nibble minimum), qs[64], d, dmin.
void unpack_q2_k(const std::byte* __restrict source, int, UnpackedBlock* __restrict out) {
  const uint8_t* b = bytes_of(source);
  out->d[0] = scale_at(b + 80);
  out->m[0] = negated_scale_at(b + 82);
  for (int g = 0; g < 16; ++g) {
    out->sub[g] = b[g] & 15;
    out->sub_m[g] = b[g] >> 4;
  }
  bit_pairs(b + 16, out->code);
  bit_pairs(b + 48, out->code + 128);
}

// hmask[32], qs[64], scales[12], d.
void unpack_q3_k(const std::byte* __restrict source, int, UnpackedBlock* __restrict out) {
  const uint8_t* b = bytes_of(source);
  out->head = f16_to_f32(scale_at(b + 108));
  const uint8_t* s = b + 96;
  for (int j = 0; j < 4; ++j) {
    const int low = s[j], next = s[j + 4], high = s[j + 8];
    out->sub[j] = static_cast<int16_t>(((low & 15) | (high & 3) << 4) - 32);
    out->sub[j + 4] = static_cast<int16_t>(((next & 15) | (high >> 2 & 3) << 4) - 32);
    out->sub[j + 8] = static_cast<int16_t>((low >> 4 | (high >> 4 & 3) << 4) - 32);
    out->sub[j + 12] = static_cast<int16_t>((next >> 4 | high >> 6 << 4) - 32);
  }
  bit_pairs(b + 32, out->code);
  bit_pairs(b + 64, out->code + 128);
  add_bits<2>(b, out->code);
}

// d, dmin, scales[12], qs[128].
void unpack_q4_k(const std::byte* __restrict source, int, UnpackedBlock* __restrict out) {
  const uint8_t* b = bytes_of(source);
  out->d[0] = scale_at(b);
  out->m[0] = negated_scale_at(b + 2);
  six_bit_scales(b + 4, out);
  for (int pair = 0; pair < 4; ++pair)
    nibbles<32>(b + 16 + 32 * pair, out->code + 64 * pair);
}

// d, dmin, scales[12], qh[32], qs[128].
void unpack_q5_k(const std::byte* __restrict source, int, UnpackedBlock* __restrict out) {
  const uint8_t* b = bytes_of(source);
  out->d[0] = scale_at(b);
  out->m[0] = negated_scale_at(b + 2);
  six_bit_scales(b + 4, out);
  for (int pair = 0; pair < 4; ++pair)
    nibbles<32>(b + 48 + 32 * pair, out->code + 64 * pair);
  add_bits<4>(b + 16, out->code);
}

// ql[128], qh[64], int8 scales[16], d.
void unpack_q6_k(const std::byte* __restrict source, int, UnpackedBlock* __restrict out) {
  const uint8_t* b = bytes_of(source);
  out->head = f16_to_f32(scale_at(b + 208));
  for (int g = 0; g < 16; ++g)
    out->sub[g] = static_cast<int8_t>(b[192 + g]);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* high = b + 128 + 32 * half;
    uint8_t* code = out->code + 128 * half;
    nibbles<64>(b + 64 * half, code);
    for (int quarter = 0; quarter < 4; ++quarter)
      for (int i = 0; i < 32; ++i)
        code[32 * quarter + i] |= static_cast<uint8_t>(((high[i] >> (2 * quarter)) & 3) << 4);
  }
}

}  // namespace invar
