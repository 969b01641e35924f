#include "cli/convert/affine_group.h"

#include <algorithm>
#include <cmath>

#include "tensor/float16.h"

namespace invar {
namespace {

constexpr float kLastCode = 15, kLeastScale = 1e-7f;

uint16_t rounded(float x, Dtype dtype) {
  return dtype == Dtype::kF16 ? f32_to_f16(x) : f32_to_bf16(x);
}
float widened(uint16_t bits, Dtype dtype) {
  return dtype == Dtype::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

}  // namespace

bool quantize_affine4(const float* w, int n, Dtype dtype, AffineGroup* group, uint8_t* codes) {
  const auto [least, most] = std::minmax_element(w, w + n);
  const bool low_is_far = std::abs(*least) > std::abs(*most);
  const float far = low_is_far ? *least : *most;
  float scale = std::max((*most - *least) / kLastCode, kLeastScale) * (low_is_far ? 1.0f : -1.0f);
  float bias = 0;
  if (const float steps = std::nearbyint(far / scale); steps != 0) {
    scale = far / steps;
    bias = far;
  }
  *group = {rounded(scale, dtype), rounded(bias, dtype)};
  scale = widened(group->scale, dtype);
  bias = widened(group->bias, dtype);
  if (!std::isfinite(scale) || !std::isfinite(bias)) return false;
  for (int i = 0; i < n; ++i) {
    const float code = scale == 0 ? 0 : std::nearbyint((w[i] - bias) / scale);
    codes[i] = uint8_t(std::clamp(code, 0.0f, kLastCode));
  }
  return true;
}

}  // namespace invar
