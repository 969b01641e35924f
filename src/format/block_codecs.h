#pragma once
// One function per quantized block type: bytes of consecutive blocks, at most 256 weights, -> codes and
// two-level scales (weight_type.h); so blocks is 1 for the types of 256. Pure integer moves, no rounding;
// byte layouts in docs/formats.md. Any bytes are a valid block.

#include <cstddef>

#include "format/weight_type.h"

namespace invar {

void unpack_q4_0(const std::byte* source, int blocks, UnpackedBlock* out);
void unpack_q4_1(const std::byte* source, int blocks, UnpackedBlock* out);
void unpack_q5_0(const std::byte* source, int blocks, UnpackedBlock* out);
void unpack_q5_1(const std::byte* source, int blocks, UnpackedBlock* out);
void unpack_q8_0(const std::byte* source, int blocks, UnpackedBlock* out);
void unpack_q2_k(const std::byte* source, int blocks, UnpackedBlock* out);
void unpack_q3_k(const std::byte* source, int blocks, UnpackedBlock* out);
void unpack_q4_k(const std::byte* source, int blocks, UnpackedBlock* out);
void unpack_q5_k(const std::byte* source, int blocks, UnpackedBlock* out);
void unpack_q6_k(const std::byte* source, int blocks, UnpackedBlock* out);

}  // namespace invar
