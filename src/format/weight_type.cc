#include "format/weight_type.h"

#include "format/block_codecs.h"

namespace invar {
namespace {

constexpr const PackedForm* form(std::string_view name) {
  for (const PackedForm& f : kPackedForms)
    if (name == f.name) return &f;
  return nullptr;
}

// Types without a form are known by name and size, so that a file that holds them can be listed and refused.
constexpr WeightType kTypes[] = {
    {"F32", 0, 1, 4, form("f32"), nullptr},
    {"F16", 1, 1, 2, form("f16"), nullptr},
    {"BF16", 30, 1, 2, form("bf16"), nullptr},
    {"Q4_0", 2, 32, 18, form("u4z8"), unpack_q4_0},
    {"Q4_1", 3, 32, 20, form("u4b"), unpack_q4_1},
    {"Q5_0", 6, 32, 22, form("u5z16"), unpack_q5_0},
    {"Q5_1", 7, 32, 24, form("u5b"), unpack_q5_1},
    {"Q8_0", 8, 32, 34, form("u8z128"), unpack_q8_0},
    {"Q2_K", 10, 256, 84, form("u2k"), unpack_q2_k},
    {"Q3_K", 11, 256, 110, form("u3k"), unpack_q3_k},
    {"Q4_K", 12, 256, 144, form("u4k"), unpack_q4_k},
    {"Q5_K", 13, 256, 176, form("u5k"), unpack_q5_k},
    {"Q6_K", 14, 256, 210, form("u6k"), unpack_q6_k},
    {"Q8_1", 9, 32, 40, nullptr, nullptr},
    {"Q8_K", 15, 256, 292, nullptr, nullptr},
    {"IQ2_XXS", 16, 256, 66, nullptr, nullptr},
    {"IQ2_XS", 17, 256, 74, nullptr, nullptr},
    {"IQ3_XXS", 18, 256, 98, nullptr, nullptr},
    {"IQ1_S", 19, 256, 50, nullptr, nullptr},
    {"IQ4_NL", 20, 32, 18, nullptr, nullptr},
    {"IQ3_S", 21, 256, 110, nullptr, nullptr},
    {"IQ2_S", 22, 256, 82, nullptr, nullptr},
    {"IQ4_XS", 23, 256, 136, nullptr, nullptr},
    {"I8", 24, 1, 1, nullptr, nullptr},
    {"I16", 25, 1, 2, nullptr, nullptr},
    {"I32", 26, 1, 4, nullptr, nullptr},
    {"I64", 27, 1, 8, nullptr, nullptr},
    {"F64", 28, 1, 8, nullptr, nullptr},
    {"IQ1_M", 29, 256, 56, nullptr, nullptr},
    {"TQ1_0", 34, 256, 54, nullptr, nullptr},
    {"TQ2_0", 35, 256, 66, nullptr, nullptr},
    {"MXFP4", 39, 32, 17, nullptr, nullptr},
    {"NVFP4", 40, 64, 36, nullptr, nullptr},
    // Safetensors only.
    {"U8", -1, 1, 1, nullptr, nullptr},
    {"U16", -1, 1, 2, nullptr, nullptr},
    {"U32", -1, 1, 4, nullptr, nullptr},
    {"U64", -1, 1, 8, nullptr, nullptr},
    {"BOOL", -1, 1, 1, nullptr, nullptr},
    {"F8_E4M3", -1, 1, 1, nullptr, nullptr},
    {"F8_E5M2", -1, 1, 1, nullptr, nullptr},
};

}  // namespace

std::span<const WeightType> weight_types() {
  return kTypes;
}

const WeightType* weight_type_by_ggml(int32_t ggml_type) {
  if (ggml_type < 0) return nullptr;
  for (const WeightType& t : kTypes)
    if (t.ggml_type == ggml_type) return &t;
  return nullptr;
}

const WeightType* weight_type_by_name(std::string_view name) {
  for (const WeightType& t : kTypes)
    if (name == t.name) return &t;
  return nullptr;
}

}  // namespace invar
