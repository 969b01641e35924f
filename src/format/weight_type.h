#pragma once
// WeightType: how one tensor type lies in a file and which packed form it becomes. Rows of one table
// (weight_type.cc); the codecs of quantized blocks are in block_codecs.cc. Layouts: docs/formats.md.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tensor/packed.h"

namespace invar {

// One or several consecutive source blocks, unpacked: at most 256 weights. Weight k is
// scale[k / group] * (code[k] - zero_point) + bias[k / group], with the two levels of scales kept apart as
// the packed form stores them:
//   ScaleKind::kF16, kBF16  scale = d[g], of that type;    bias, if any, = m[g], of the same type
//   kF16xU8                 scale = f16(d[0]) * sub[g];    bias = f16(m[0]) * sub_m[g]
//   kF32xS8                 scale = head * sub[g]
// Of an E4M3 form: at most form.group weights, code * head.
// m already carries its sign. In a form with a table, code holds indices.
struct UnpackedBlock {
  uint8_t code[256];
  float head;
  uint16_t d[16];
  uint16_t m[16];
  int16_t sub[16];
  uint8_t sub_m[16];
};

struct SourcePlanes;

struct WeightType {
  const char* name;   // "Q4_K"
  int32_t ggml_type;  // number in GGUF files, -1 if none
  int32_t block;      // elements per block along K: 1, 32, 256
  int32_t block_bytes;
  const PackedForm* form;  // nullptr: known, but not supported by this build
  // 1 to 256 / block consecutive blocks; nullptr for float types and for those with unpack_planes.
  void (*unpack)(const std::byte* source, int blocks, UnpackedBlock* out);
  // Types whose scales lie in tensors of their own: columns [col, col + cols) of a row, col a multiple of 32,
  // cols at most 256.
  void (*unpack_planes)(const SourcePlanes& m, int64_t row, int64_t col, int cols,
                        UnpackedBlock* out) = nullptr;
};

// Of so many elements, which are whole blocks.
inline uint64_t coded_bytes(const WeightType& type, int64_t elements) {
  return static_cast<uint64_t>(elements / type.block) * static_cast<uint64_t>(type.block_bytes);
}

std::span<const WeightType> weight_types();
const WeightType* weight_type_by_ggml(int32_t ggml_type);      // nullptr if unknown
const WeightType* weight_type_by_name(std::string_view name);  // "F32", "BF16", "Q4_0", ...
const WeightType& known_weight_type(std::string_view name);    // one that the table has

}  // namespace invar
