#pragma once
// Element types of plain (not quantized) tensors.

#include <cstddef>
#include <cstdint>

namespace invar {

enum class Dtype : uint8_t { kF32, kF16, kBF16 };

constexpr size_t dtype_bytes(Dtype t) {
  return t == Dtype::kF32 ? 4 : 2;
}
constexpr const char* dtype_name(Dtype t) {
  return t == Dtype::kF32 ? "f32" : t == Dtype::kF16 ? "f16" : "bf16";
}

}  // namespace invar
