#pragma once
// Raw codecs: keys and values as f32, f16 or bf16. Their inner functions, compiled once per instruction set:
// included by kernels/cpu/attention-inl.h, after kernels/cpu/isa/isa.h, whose vectors they use.
// Planes: k_codes [head_dim][64 positions], v_codes [64 positions][head_dim].

namespace invar::INVAR_ISA {

struct RawF32 {
  using Element = float;
  static constexpr float kLargest = 0x1.fffffep127f;
  static constexpr int kIndex = 2;  // in kv/codecs.cc
  INVAR_INLINE Vf widen(const float* p) { return load(p); }
  INVAR_INLINE Vf widen_n(const float* p, int n) { return load_n(p, n); }
  INVAR_INLINE void narrow(float* p, Vf x) { store(p, x); }
};
struct RawF16 {
  using Element = uint16_t;
  static constexpr float kLargest = 65504.0f;
  static constexpr int kIndex = 0;
  INVAR_INLINE Vf widen(const uint16_t* p) { return load_f16(p); }
  INVAR_INLINE Vf widen_n(const uint16_t* p, int n) { return load_f16_n(p, n); }
  INVAR_INLINE void narrow(uint16_t* p, Vf x) { store_f16(p, x); }
};
struct RawBF16 {
  using Element = uint16_t;
  static constexpr float kLargest = 0x1.fep127f;
  static constexpr int kIndex = 1;
  INVAR_INLINE Vf widen(const uint16_t* p) { return load_bf16(p); }
  INVAR_INLINE Vf widen_n(const uint16_t* p, int n) { return load_bf16_n(p, n); }
  INVAR_INLINE void narrow(uint16_t* p, Vf x) { store_bf16(p, x); }
};

// A codec as attention sees it.
template <class Raw>
struct RawCodec {
  using Element = typename Raw::Element;
  static constexpr int kIndex = Raw::kIndex;

  // Elements of a plane as they lie there, 16 at a time.
  struct Source {
    const Element* p;
    const Element* next;  // the same plane of the next page
    __attribute__((always_inline)) Vf at(int64_t i) const { return Raw::widen(p + i); }
    // Called once per W loads: prefetches as much of the next page, in order of addresses. The loads
    // themselves walk in strides that the hardware does not foresee.
    template <int W>
    __attribute__((always_inline)) void ask(int64_t step) const {
      for (int i = 0; i < W * 16; i += 64 / int(sizeof(Element)))
        __builtin_prefetch(next + step * W * 16 + i);
    }
  };
  INVAR_INLINE Source source(const std::byte* plane, const std::byte* next_plane) {
    return {(const Element*)plane, (const Element*)next_plane};
  }

  // Narrows n <= 16 floats: saturating; NaN and infinity become +0. True if there were any.
  INVAR_INLINE bool narrow(const float* x, int n, Element* out) {
    Vf v = n == 16 ? load(x) : load_n(x, n);
    const Mask wrong = not_finite(v);
    v = clamp(select(wrong, zero(), v), -Raw::kLargest, Raw::kLargest);
    Raw::narrow(out, v);
    return any(wrong);
  }

  // One token's key and value of one KV head, f32 [head_dim] each. True if a value was NaN or infinite.
  INVAR_INLINE bool write(std::byte* k_plane, std::byte* v_plane, int head_dim, int slot, const float* k,
                          const float* v) {
    Element* column = (Element*)k_plane + slot;
    Element* row = (Element*)v_plane + int64_t(slot) * head_dim;
    bool bad = false;
    for (int d = 0; d < head_dim; d += 16) {
      const int n = head_dim - d < 16 ? head_dim - d : 16;
      Element some[16];
      bad |= narrow(k + d, n, some);
      for (int i = 0; i < n; i++)
        column[int64_t(d + i) * kPageTokens] = some[i];
      bad |= narrow(v + d, n, some);
      memcpy(row + d, some, size_t(n) * sizeof(Element));
    }
    return bad;
  }

  // Keys of a page as f32 [head_dim][64].
  INVAR_INLINE void widen_keys(const std::byte* k_plane, int head_dim, float* out) {
    const Element* p = (const Element*)k_plane;
    for (int i = 0; i < head_dim * kPageTokens; i += 16)
      store(out + i, Raw::widen(p + i));
  }
  // Values of a page as f32 [64][padded], padded = head_dim rounded up to 16, zeros behind.
  INVAR_INLINE void widen_values(const std::byte* v_plane, int head_dim, int padded, float* out) {
    const Element* p = (const Element*)v_plane;
    for (int j = 0; j < kPageTokens; j++, p += head_dim, out += padded) {
      for (int d = 0; d < head_dim; d += 16) {
        store(out + d, d + 16 <= head_dim ? Raw::widen(p + d) : Raw::widen_n(p + d, head_dim - d));
      }
    }
  }
};

}  // namespace invar::INVAR_ISA
