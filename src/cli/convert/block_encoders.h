#pragma once
// Rows of f32 weights -> the bytes of a tensor type of GGUF files; what block_codecs.h of format/ reads back.
// The same bytes on every machine. Pure functions.

#include <cstddef>
#include <cstdint>
#include <span>

#include "format/weight_type.h"

namespace invar {

struct BlockEncoder {
  const char* type;   // a WeightType's name
  int32_t file_type;  // general.file_type of files that are mostly this
  // n: a multiple of the type's block; x are finite. False: a value that the type, or its scale, cannot hold.
  bool (*encode)(const float* x, int64_t n, std::byte* out);
};

std::span<const BlockEncoder> block_encoders();
const BlockEncoder* find_encoder(std::string_view type);  // nullptr: no such one

// The first n weights of a block that its type has unpacked.
void decode_block(const PackedForm& form, const UnpackedBlock& block, int n, float* out);
// Elements [first, first + n) of a tensor as f32, both multiples of its block. The type must have a form.
void decode_weights(const WeightType& type, const std::byte* tensor, int64_t first, int64_t n, float* out);

}  // namespace invar
