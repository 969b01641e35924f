#pragma once
// Linear layers, AVX2 + FMA without VNNI. 16 channels are two registers ("halves") of 8. vpmaddubsw
// multiplies unsigned codes by signed activations into 16-bit pair sums, which are added up in 16 bits as
// long as they cannot overflow and then widened by vpmaddwd:
//   up to 4 bits: pair <= 15*127*2 = 3810, 8 of them fit (30480); 5 bits: 4 of 7874; 6 bits: 2 of 16002;
//   8 bits: low and high nibble apart, 8 each, the high sum times 16.
// All of this is exact, so the order is free. Few rows read the packed planes directly; many rows unpack a
// block of columns of the tile to bytes once, in the L1 cache.

#include <cstring>

#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/linear_forms.h"

namespace invar::INVAR_ISA {

#define INVAR_UNROLL _Pragma("GCC unroll 16")
// Keeps compilers from re-associating the 16-bit sums and reordering the products, which would spill them
// all.
#define INVAR_PIN(v) asm("" : "+x"(v))

static constexpr int kMaxRows = 96, kRowStep = 6;
static constexpr int kDirectRows = 5;         // up to here: straight from the planes
static constexpr int kBlockGroups = 24;       // 768 columns unpacked at a time
static constexpr int kPrefetchBytes = 16384;  // ahead in the weight stream

INVAR_MEMBER __m256i broadcast4(const void* p) {
  int32_t v;
  std::memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}
INVAR_MEMBER __m256 broadcast_f32(const void* p) {
  return _mm256_broadcast_ss(static_cast<const float*>(p));
}
INVAR_MEMBER void prefetch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p) + kPrefetchBytes, _MM_HINT_T1);
}
INVAR_MEMBER __m256i load32(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

// Codes of quad q, half h (32 bytes: 8 channels x 4 columns) from the packed planes.
template <int kBits>
INVAR_MEMBER __m256i code_bytes(const uint8_t* planes, int q, int h) {
  const auto masked = [](__m256i v, int m) { return _mm256_and_si256(v, _mm256_set1_epi8(char(m))); };
  // `width` bits of each byte from bit `from`, moved to bit `to`.
  const auto field = [&](const uint8_t* p, int from, int to, int width) {
    __m256i v = load32(p + 32 * h);
    if (from > to) v = _mm256_srli_epi16(v, from - to);
    if (from < to) v = _mm256_slli_epi16(v, to - from);
    return masked(v, ((1 << width) - 1) << to);
  };
  switch (kBits) {
    case 2:
      return field(planes + q / 4 * 64, q % 4 * 2, 0, 2);
    case 3:
      return _mm256_or_si256(field(planes + q / 4 * 64, q % 4 * 2, 0, 2), field(planes + 128, q, 2, 1));
    case 4:
      return field(planes + q % 4 * 64, q / 4 * 4, 0, 4);
    case 5:
      return _mm256_or_si256(field(planes + q % 4 * 64, q / 4 * 4, 0, 4), field(planes + 256, q, 4, 1));
    case 6:
      return _mm256_or_si256(field(planes + q % 4 * 64, q / 4 * 4, 0, 4),
                             field(planes + 256 + q / 4 * 64, q % 4 * 2, 4, 2));
    default:
      return load32(planes + q * 64 + 32 * h);
  }
}

INVAR_MEMBER __m128i load16(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
INVAR_MEMBER __m256 f16x8(const void* p) {
  return _mm256_cvtph_ps(load16(p));
}
// Eight halves of a form with half scales.
template <class F>
INVAR_MEMBER __m256 half8(const void* p) {
  if (F::kScale == ScaleKind::kF16) return f16x8(p);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(p)), 16));
}

// sw and bw of scale s of a group, half h.
template <class F>
INVAR_MEMBER __m256 scale8(const GroupAddress& at, int s, int h) {
  const uint8_t* p = at.record + F::kScaleHead + (at.index * F::kScales + s) * F::kScaleBytes;
  if (F::kHalfScale) return half8<F>(p + 16 * h);
  const __m128i fine = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8 * h));
  if (F::kScale == ScaleKind::kF32xS8) {
    const __m256 d = _mm256_loadu_ps(reinterpret_cast<const float*>(at.record + 32 * h));
    return _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(fine)));
  }
  return _mm256_mul_ps(f16x8(at.record + 16 * h), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(fine)));
}
template <class F>
INVAR_MEMBER __m256 bias8(const GroupAddress& at, int s, int h) {
  const uint8_t* p = at.record + F::kScaleHead + (at.index * F::kScales + s) * F::kScaleBytes;
  if (F::kHalfScale) return half8<F>(p + 32 + 16 * h);
  const __m128i fine = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 16 + 8 * h));
  return _mm256_mul_ps(f16x8(at.record + 32 + 16 * h), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(fine)));
}

// The magic constant: an int sum that starts at the bits of 1.5 * 2^23 is, read as a float, 12582912 + sum,
// so that one FMA with -12582912 * sw gives RN(sum * sw). Exact for |sum| < 2^22 and sw of at most 22
// significant bits.
static constexpr float kMagic = 0x1.8p23f;
static constexpr int32_t kMagicBits = 0x4B400000;

// 8 bits are handled as two planes of 4.
template <class F>
struct Dot {
  static constexpr int kPlanes = F::kCodeBits == 8 ? 2 : 1;
  static constexpr int kPlaneBits = F::kCodeBits == 8 ? 4 : F::kCodeBits;
  static constexpr int kQuads = F::kGroup / 4;  // of one scale
  static constexpr int kFit = kPlaneBits <= 4 ? 8 : kPlaneBits == 5 ? 4 : 2;
  static constexpr int kFlush = kFit < kQuads ? kFit : kQuads;         // quads added up in 16 bits
  static constexpr int kFloats = F::kBias || F::kZeroPoint ? 32 : 16;  // unpacked: sw, then bw or -magic*sw
  static constexpr int kUnpackedBytes = kPlanes * 512;                 // of a group of 32 columns
};

// Where weights come from: the packed tile ...
template <class F>
struct PackedSource {
  const uint8_t* tile;
  int64_t cols;
  const CodeTable* table;
  GroupAddress at;
  [[gnu::always_inline]] void find(int64_t g) { at = group_address<F>(tile, cols, g); }
  [[gnu::always_inline]] void seek(int64_t g) {
    find(g);
    INVAR_UNROLL for (int i = 0; i < F::kBits; ++i) prefetch(at.planes + 64 * i);
    if (at.index == 0) {
      for (int i = 0; i < F::scale_area(8); i += 64)
        prefetch(at.record + i);
    }
  }
  [[gnu::always_inline]] __m256i codes(int plane, int q, int h) const {
    const __m256i v = code_bytes<F::kBits>(at.planes, q, h);
    if (F::kTable) {
      const uint8_t* t = Dot<F>::kPlanes == 1 ? table->code : plane ? table->high : table->low;
      return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load16(t)), v);
    }
    if (Dot<F>::kPlanes == 1) return v;
    return _mm256_and_si256(plane ? _mm256_srli_epi16(v, 4) : v, _mm256_set1_epi8(15));
  }
  [[gnu::always_inline]] __m256 scale(int s, int h) const { return scale8<F>(at, s, h); }
  [[gnu::always_inline]] __m256 second(int s, int h) const {
    return F::kBias ? bias8<F>(at, s, h) : _mm256_mul_ps(_mm256_set1_ps(-kMagic), scale8<F>(at, s, h));
  }
};

// ... or a block of it, unpacked to bytes.
template <class F>
struct UnpackedBlock {
  alignas(64) uint8_t codes_[kBlockGroups][Dot<F>::kUnpackedBytes];
  alignas(64) float floats_[kBlockGroups][F::kScales][Dot<F>::kFloats];

  [[gnu::always_inline]] void fill(const uint8_t* tile, int64_t cols, const CodeTable* table, int64_t first,
                                   int groups) {
    PackedSource<F> source{tile, cols, table, {}};
    for (int g = 0; g < groups; ++g) {
      source.find(first + g);
      for (int p = 0; p < Dot<F>::kPlanes; ++p) {
        INVAR_UNROLL for (int q = 0; q < 8; ++q) {
          INVAR_UNROLL for (int h = 0; h < 2; ++h) {
            _mm256_store_si256(reinterpret_cast<__m256i*>(codes_[g] + p * 512 + q * 64 + h * 32),
                               source.codes(p, q, h));
          }
        }
      }
      for (int s = 0; s < F::kScales; ++s) {
        for (int h = 0; h < 2; ++h) {
          _mm256_store_ps(floats_[g][s] + 8 * h, source.scale(s, h));
          if (Dot<F>::kFloats == 32) _mm256_store_ps(floats_[g][s] + 16 + 8 * h, source.second(s, h));
        }
      }
    }
  }
};
template <class F>
struct UnpackedSource {
  const UnpackedBlock<F>* block;
  int64_t first;
  const uint8_t* ahead;  // the packed block after this one, fetched meanwhile; or nullptr
  const uint8_t* codes_;
  const float (*floats_)[Dot<F>::kFloats];
  [[gnu::always_inline]] void seek(int64_t g) {
    codes_ = block->codes_[g - first];
    floats_ = block->floats_[g - first];
    if (ahead) {
      constexpr int64_t kGroupBytes = F::record_size(8) / 8;
      const char* p = reinterpret_cast<const char*>(ahead) + (g - first) * kGroupBytes;
      INVAR_UNROLL for (int i = 0; i < kGroupBytes; i += 64) _mm_prefetch(p + i, _MM_HINT_T1);
    }
  }
  [[gnu::always_inline]] __m256i codes(int plane, int q, int h) const {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(codes_ + plane * 512 + q * 64 + h * 32));
  }
  [[gnu::always_inline]] __m256 scale(int s, int h) const { return _mm256_load_ps(floats_[s] + 8 * h); }
  [[gnu::always_inline]] __m256 second(int s, int h) const { return _mm256_load_ps(floats_[s] + 16 + 8 * h); }
};

// Adds groups [begin, end) of kRows rows to acc. kHalves of the 16 channels at a time: as many as keep all
// 16-bit sums in registers.
template <class F, int kRows, class Source>
[[gnu::noinline]] static void dot_rows(Source source, int64_t begin, int64_t end, int64_t cols,
                                       const std::byte* rows, size_t stride, float (*acc)[kTileRows]) {
  using D = Dot<F>;
  constexpr int kHalves = D::kPlanes == 1 && D::kFlush == D::kQuads ? 2 : 1;
  const __m256i ones = _mm256_set1_epi16(1);
  const std::byte* row[kRows];
  INVAR_UNROLL for (int r = 0; r < kRows; ++r) row[r] = rows + r * stride;
  for (int64_t g = begin; g < end; ++g) {
    source.seek(g);
    // Offsets of the group in a row's codes, scales, scaled sums and sums. Pinned: one base register per row,
    // where compilers would keep one pointer per row and field.
    int64_t at_codes = g * 32, at_scale = cols + g * 4, at_scaled = at_scale + cols / 8,
            at_sums = at_scaled + cols / 8;
    asm("" : "+r"(at_codes), "+r"(at_scale), "+r"(at_scaled), "+r"(at_sums));
    INVAR_UNROLL for (int h0 = 0; h0 < 2; h0 += kHalves) {
      INVAR_UNROLL for (int s = 0; s < F::kScales; ++s) {
        __m256i d[kRows][kHalves];
        INVAR_UNROLL for (int q0 = s * D::kQuads; q0 < (s + 1) * D::kQuads; q0 += D::kFlush) {
          __m256i sum[kRows][kHalves][D::kPlanes];
          INVAR_UNROLL for (int q = q0; q < q0 + D::kFlush; ++q) {
            __m256i w[kHalves][D::kPlanes];
            INVAR_UNROLL for (int h = 0; h < kHalves; ++h) {
              INVAR_UNROLL for (int p = 0; p < D::kPlanes; ++p) w[h][p] = source.codes(p, q, h0 + h);
            }
            INVAR_UNROLL for (int r = 0; r < kRows; ++r) {
              const __m256i xq = broadcast4(row[r] + at_codes + q * 4);
              INVAR_UNROLL for (int h = 0; h < kHalves; ++h) {
                INVAR_UNROLL for (int p = 0; p < D::kPlanes; ++p) {
                  const __m256i product = _mm256_maddubs_epi16(w[h][p], xq);
                  sum[r][h][p] = q == q0 ? product : _mm256_add_epi16(sum[r][h][p], product);
                  INVAR_PIN(sum[r][h][p]);
                }
              }
            }
          }
          INVAR_UNROLL for (int r = 0; r < kRows; ++r) {
            INVAR_UNROLL for (int h = 0; h < kHalves; ++h) {
              __m256i wide = _mm256_madd_epi16(sum[r][h][0], ones);
              if (D::kPlanes == 2) {
                wide = _mm256_add_epi32(wide,
                                        _mm256_madd_epi16(sum[r][h][D::kPlanes - 1], _mm256_set1_epi16(16)));
              }
              d[r][h] = q0 == s * D::kQuads ? wide : _mm256_add_epi32(d[r][h], wide);
            }
          }
        }
        INVAR_UNROLL for (int r = 0; r < kRows; ++r) {
          const __m256 sa = broadcast_f32(row[r] + at_scale);
          // 16-bit pairs of sums times minus the zero point; with two scales only the pair's own half counts.
          constexpr int kZp = -F::kZeroPoint;
          const int32_t zp = F::kScales == 1 ? int32_t(uint32_t(kZp & 0xFFFF) * 0x10001u)
                             : s == 0        ? kZp & 0xFFFF
                                             : int32_t(uint32_t(kZp & 0xFFFF) << 16);
          __m256i start;
          if (F::kZeroPoint) {
            start = _mm256_add_epi32(_mm256_set1_epi32(kMagicBits),
                                     _mm256_madd_epi16(broadcast4(row[r] + at_sums), _mm256_set1_epi32(zp)));
          }
          __m256 scaled_sum;
          if (F::kBias && F::kScales == 1) scaled_sum = broadcast_f32(row[r] + at_scaled);
          if (F::kBias && F::kScales == 2) {
            int16_t sum16;
            std::memcpy(&sum16, row[r] + at_sums + 2 * s, 2);
            scaled_sum = _mm256_mul_ps(sa, _mm256_set1_ps(float(sum16)));
          }
          INVAR_UNROLL for (int h = 0; h < kHalves; ++h) {
            float* out = acc[r] + 8 * (h0 + h);
            const __m256 sw = source.scale(s, h0 + h);
            __m256 t;
            if (F::kZeroPoint) {
              t = _mm256_castsi256_ps(_mm256_add_epi32(d[r][h], start));
              t = _mm256_fmadd_ps(t, sw, source.second(s, h0 + h));
            } else {
              t = _mm256_mul_ps(_mm256_cvtepi32_ps(d[r][h]), sw);
            }
            __m256 a = _mm256_fmadd_ps(t, sa, _mm256_load_ps(out));
            if (F::kBias) a = _mm256_fmadd_ps(source.second(s, h0 + h), scaled_sum, a);
            _mm256_store_ps(out, a);
          }
        }
      }
    }
  }
}

template <class F>
[[gnu::noinline]] static void dot_tile(const uint8_t* tile, int64_t cols, const CodeTable* table,
                                       const std::byte* rows, size_t stride, int count,
                                       float (*acc)[kTileRows]) {
  std::memset(acc, 0, sizeof *acc * count);
  const int64_t groups = cols / 32;
  if (count <= kDirectRows) {
    in_batches<kDirectRows>(count, [&](auto n, int) {
      dot_rows<F, n.value>(PackedSource<F>{tile, cols, table, {}}, 0, groups, cols, rows, stride, acc);
    });
    return;
  }
  UnpackedBlock<F> block;
  for (int64_t g = 0; g < groups; g += kBlockGroups) {
    const int64_t end = g + kBlockGroups < groups ? g + kBlockGroups : groups;
    block.fill(tile, cols, table, g, int(end - g));
    const uint8_t* next = end < groups ? group_address<F>(tile, cols, end).record : tile + F::tile_size(cols);
    in_batches<kRowStep>(count, [&](auto n, int r) {
      const UnpackedSource<F> source{&block, g, r == 0 ? next : nullptr, nullptr, nullptr};
      dot_rows<F, n.value>(source, g, end, cols, rows + r * stride, stride, acc + r);
    });
  }
}

// Products and their 16-bit sums, with as many sums as hide the latency.
static int64_t dot_peak(int64_t rounds) {
  constexpr int kSums = 12;
  __m256i w = _mm256_set1_epi8(3), sum[kSums];
  INVAR_UNROLL for (int i = 0; i < kSums; ++i) sum[i] = _mm256_setzero_si256();
  for (int64_t round = 0; round < rounds; ++round) {
    INVAR_UNROLL for (int i = 0; i < kSums; ++i) {
      INVAR_PIN(w);  // or the product would be taken out of the loop
      sum[i] = _mm256_add_epi16(sum[i], _mm256_maddubs_epi16(w, w));
      INVAR_PIN(sum[i]);
    }
  }
  return rounds * kSums * 32;
}

}  // namespace invar::INVAR_ISA

#include "kernels/cpu/linear_float_avx2.h"
