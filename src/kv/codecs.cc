// The table of KV codecs. A new one: a line here (index = position), its inner functions in codecs/NAME-inl.h
// and an instantiation in kernels/cpu/attention.cc.

#include "kv/codec.h"

namespace invar {
namespace {

template <Dtype T>
size_t raw_bytes(int head_dim) {
  return size_t(head_dim) * kPageTokens * dtype_bytes(T);
}

constexpr KvCodec kCodecs[] = {
    {"f16", 0, Dtype::kF16, 2, {{"k_codes", raw_bytes<Dtype::kF16>}, {"v_codes", raw_bytes<Dtype::kF16>}}},
    {"bf16",
     1,
     Dtype::kBF16,
     2,
     {{"k_codes", raw_bytes<Dtype::kBF16>}, {"v_codes", raw_bytes<Dtype::kBF16>}}},
    {"f32", 2, Dtype::kF32, 2, {{"k_codes", raw_bytes<Dtype::kF32>}, {"v_codes", raw_bytes<Dtype::kF32>}}},
};

}  // namespace

std::span<const KvCodec> kv_codecs() {
  return kCodecs;
}

}  // namespace invar
