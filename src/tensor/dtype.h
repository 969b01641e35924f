#pragma once
// Element types of tensors whose elements are floats. E4M3 has scales beside it (tensor/packed.h).

#include <cstddef>
#include <cstdint>

namespace invar {

enum class Dtype : uint8_t { kF32, kF16, kBF16, kE4M3 };

constexpr size_t dtype_bytes(Dtype t) {
  return t == Dtype::kF32 ? 4 : t == Dtype::kE4M3 ? 1 : 2;
}
constexpr const char* dtype_name(Dtype t) {
  return t == Dtype::kF32 ? "f32" : t == Dtype::kF16 ? "f16" : t == Dtype::kBF16 ? "bf16" : "e4m3";
}

}  // namespace invar
