#include "format/weight_type.h"

#include "base/check.h"
#include "format/block_codecs.h"
#include "format/plane_codecs.h"
#include "format/table_codecs.h"

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
    {"IQ2_XXS", 16, 256, 66, form("iq2"), unpack_iq2_xxs},
    {"IQ2_XS", 17, 256, 74, form("iq2"), unpack_iq2_xs},
    {"IQ3_XXS", 18, 256, 98, form("iq3x"), unpack_iq3_xxs},
    {"IQ1_S", 19, 256, 50, form("iq1"), unpack_iq1_s},
    {"IQ4_NL", 20, 32, 18, form("iq4"), unpack_iq4_nl},
    {"IQ3_S", 21, 256, 110, form("iq3s"), unpack_iq3_s},
    {"IQ2_S", 22, 256, 82, form("iq2"), unpack_iq2_s},
    {"IQ4_XS", 23, 256, 136, form("iq4x"), unpack_iq4_xs},
    {"I8", 24, 1, 1, nullptr, nullptr},
    {"I16", 25, 1, 2, nullptr, nullptr},
    {"I32", 26, 1, 4, nullptr, nullptr},
    {"I64", 27, 1, 8, nullptr, nullptr},
    {"F64", 28, 1, 8, nullptr, nullptr},
    {"IQ1_M", 29, 256, 56, form("iq1"), unpack_iq1_m},
    {"TQ1_0", 34, 256, 54, form("u2k"), unpack_tq1_0},
    {"TQ2_0", 35, 256, 66, form("u2k"), unpack_tq2_0},
    {"MXFP4", 39, 32, 17, form("e2m1"), unpack_mxfp4},
    {"NVFP4", 40, 64, 36, form("e2m1g16"), unpack_nvfp4},
    // Joined from several tensors of safetensors folders.
    {"MLX2_F16", -1, 32, 8, form("u4b"), nullptr, unpack_affine<2, false>},
    {"MLX2_BF16", -1, 32, 8, form("u4bb"), nullptr, unpack_affine<2, true>},
    {"MLX3_F16", -1, 32, 12, form("u4b"), nullptr, unpack_affine<3, false>},
    {"MLX3_BF16", -1, 32, 12, form("u4bb"), nullptr, unpack_affine<3, true>},
    {"MLX4_F16", -1, 32, 16, form("u4b"), nullptr, unpack_affine<4, false>},
    {"MLX4_BF16", -1, 32, 16, form("u4bb"), nullptr, unpack_affine<4, true>},
    {"MLX5_F16", -1, 32, 20, form("u5b"), nullptr, unpack_affine<5, false>},
    {"MLX5_BF16", -1, 32, 20, form("u8bb"), nullptr, unpack_affine<5, true>},
    {"MLX6_F16", -1, 32, 24, form("u8b"), nullptr, unpack_affine<6, false>},
    {"MLX6_BF16", -1, 32, 24, form("u8bb"), nullptr, unpack_affine<6, true>},
    {"MLX8_F16", -1, 32, 32, form("u8b"), nullptr, unpack_affine<8, false>},
    {"MLX8_BF16", -1, 32, 32, form("u8bb"), nullptr, unpack_affine<8, true>},
    {"MLX_MXFP4", -1, 32, 16, form("e2m1"), nullptr, unpack_mlx_mxfp4},
    {"MLX_NVFP4", -1, 32, 16, form("e2m1g16"), nullptr, unpack_mlx_nvfp4},
    {"MLX_NVFP4_SCALED", -1, 32, 16, form("e2m1g16f"), nullptr, unpack_mlx_nvfp4},
    {"NVFP4_SCALED", -1, 64, 36, form("e2m1g16f"), nullptr, unpack_nvfp4_rows},
    {"MLX_MXFP8", -1, 32, 32, form("e4m3g32"), nullptr, unpack_mlx_mxfp8},
    {"FP8_E4M3", -1, 32, 32, form("e4m3"), nullptr, unpack_fp8},
    {"FP8_E4M3_G32", -1, 32, 32, form("e4m3g32"), nullptr, unpack_fp8},
    {"GPTQ4_SYM", -1, 32, 16, form("u4z8"), nullptr, unpack_gptq_symmetric},
    {"GPTQ4", -1, 32, 16, form("u5z16"), nullptr, unpack_gptq},
    {"GPTQ4_SYM_ACT_ORDER", -1, 32, 16, form("u4z8g"), nullptr, unpack_gptq_symmetric},
    {"GPTQ4_ACT_ORDER", -1, 32, 16, form("u5z16g"), nullptr, unpack_gptq},
    {"AWQ4", -1, 32, 16, form("u5z16"), nullptr, unpack_awq},
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

const WeightType& known_weight_type(std::string_view name) {
  const WeightType* type = weight_type_by_name(name);
  CHECK(type != nullptr);
  return *type;
}

}  // namespace invar
