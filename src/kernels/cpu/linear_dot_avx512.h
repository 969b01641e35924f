#pragma once
// Linear layers, AVX-512 with VNNI: the 16 channels of a tile are one register, vpdpbusd adds 4 columns of
// unsigned codes times signed activations to each channel's exact 32-bit sum. Few rows read the packed planes
// directly, more rows unpack a block of columns of the tile to bytes once, in the L1 cache.

#include <cstring>

#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/linear_forms.h"

namespace invar::INVAR_ISA {

#define INVAR_UNROLL _Pragma("GCC unroll 16")

static constexpr int kMaxRows = 96, kRowStep = 12;
static constexpr int kDirectRows = 6;         // up to here: straight from the planes
static constexpr int kBlockGroups = 24;       // 768 columns unpacked at a time
static constexpr int kPrefetchBytes = 16384;  // ahead in the weight stream

INVAR_MEMBER __m512i broadcast4(const void* p) {
  int32_t v;
  std::memcpy(&v, p, 4);
  return _mm512_set1_epi32(v);
}
INVAR_MEMBER void prefetch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p) + kPrefetchBytes, _MM_HINT_T1);
}

// Codes of quad q (64 bytes: 16 channels x 4 columns) from the packed planes.
template <int kBits>
INVAR_MEMBER __m512i code_bytes(const uint8_t* planes, int q) {
  // `width` bits of each byte from bit `from`, moved to bit `to`.
  const auto field = [](const uint8_t* p, int from, int to, int width) __attribute__((always_inline)) {
    __m512i v = _mm512_loadu_si512(p);
    if (from > to) v = _mm512_srli_epi16(v, from - to);
    if (from < to) v = _mm512_slli_epi16(v, to - from);
    return _mm512_and_si512(v, _mm512_set1_epi8(char(((1 << width) - 1) << to)));
  };
  const uint8_t* two = planes + q / 4 * 64;
  const uint8_t* four = planes + q % 4 * 64;
  switch (kBits) {
    case 2:
      return field(two, q % 4 * 2, 0, 2);
    case 3:
      return _mm512_or_si512(field(two, q % 4 * 2, 0, 2), field(planes + 128, q, 2, 1));
    case 4:
      return field(four, q / 4 * 4, 0, 4);
    case 5:
      return _mm512_or_si512(field(four, q / 4 * 4, 0, 4), field(planes + 256, q, 4, 1));
    case 6:
      return _mm512_or_si512(field(four, q / 4 * 4, 0, 4), field(two + 256, q % 4 * 2, 4, 2));
    default:
      return _mm512_loadu_si512(planes + q * 64);
  }
}

INVAR_MEMBER __m512 f16x16(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
INVAR_MEMBER __m128i load16(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

INVAR_MEMBER __m512 bf16x16(const uint8_t* p) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
// 16 halves of a form with half scales.
template <class F>
INVAR_MEMBER __m512 half16(const uint8_t* p) {
  return F::kScale == ScaleKind::kF16 ? f16x16(p) : bf16x16(p);
}

// sw and bw of scale s of a group.
template <class F>
INVAR_MEMBER __m512 scale16(const GroupAddress& at, int s) {
  const uint8_t* p = at.record + F::kScaleHead + (at.index * F::kScales + s) * F::kScaleBytes;
  if (F::kHalfScale) return half16<F>(p);
  if (F::kScale == ScaleKind::kF32xS8)
    return _mm512_mul_ps(_mm512_loadu_ps(at.record), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load16(p))));
  return _mm512_mul_ps(f16x16(at.record), _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load16(p))));
}
template <class F>
INVAR_MEMBER __m512 bias16(const GroupAddress& at, int s) {
  const uint8_t* p = at.record + F::kScaleHead + (at.index * F::kScales + s) * F::kScaleBytes;
  if (F::kHalfScale) return half16<F>(p + 32);
  return _mm512_mul_ps(f16x16(at.record + 32), _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load16(p + 16))));
}

// The magic constant: an int sum that starts at the bits of 1.5 * 2^23 is, read as a float, 12582912 + sum,
// so that one FMA with -12582912 * sw gives RN(sum * sw). Exact for |sum| < 2^22 and sw of at most 22
// significant bits.
static constexpr float kMagic = 0x1.8p23f;
static constexpr int32_t kMagicBits = 0x4B400000;

// Where weights come from: the packed tile ...
template <class F>
struct PackedSource {
  const uint8_t* tile;
  int64_t cols;
  const CodeTable* table;
  GroupAddress at;
  [[gnu::always_inline]] void seek(int64_t g) {
    at = group_address<F>(tile, cols, g);
    INVAR_UNROLL for (int i = 0; i < F::kBits; ++i) prefetch(at.planes + 64 * i);
    if (at.index == 0) {
      for (int i = 0; i < F::scale_area(8); i += 64)
        prefetch(at.record + i);
    }
  }
  [[gnu::always_inline]] __m512i codes(int q) const {
    const __m512i v = code_bytes<F::kBits>(at.planes, q);
    if (!F::kTable) return v;
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load16(table->code)), v);
  }
  [[gnu::always_inline]] __m512 scale(int s) const { return scale16<F>(at, s); }
  [[gnu::always_inline]] __m512 bias(int s) const { return bias16<F>(at, s); }
  // What the pair of 16-bit sums of a group is multiplied with: minus the zero point; with two scales only
  // the half of the scale counts.
  [[gnu::always_inline]] static int32_t minus_zero(int s) {
    constexpr uint32_t kZp = uint32_t(-F::kZeroPoint) & 0xFFFF;
    return int32_t(F::kScales == 1 ? kZp * 0x10001u : s == 0 ? kZp : kZp << 16);
  }
};

// ... or a block of it, unpacked: the width of the codes no longer matters.
template <int kGroup_, bool kBias_>
struct Unpacked {
  static constexpr int kGroup = kGroup_, kScales = 32 / kGroup;
  static constexpr bool kBias = kBias_, kZeroPoint = !kBias;
  alignas(64) uint8_t code[kBlockGroups][8][64];
  alignas(64) float floats[kBlockGroups][kScales][kBias ? 2 : 1][kTileRows];
  int32_t minus_zeros[kScales];

  template <class F>
  [[gnu::always_inline]] void fill(const uint8_t* tile, int64_t cols, const CodeTable* table, int64_t first,
                                   int groups) {
    PackedSource<F> source{tile, cols, table, {}};
    for (int s = 0; s < kScales; ++s)
      minus_zeros[s] = source.minus_zero(s);
    for (int g = 0; g < groups; ++g) {
      source.seek(first + g);
      INVAR_UNROLL for (int q = 0; q < 8; ++q) _mm512_storeu_si512(code[g][q], source.codes(q));
      for (int s = 0; s < kScales; ++s) {
        _mm512_storeu_ps(floats[g][s][0], source.scale(s));
        if constexpr (kBias) _mm512_storeu_ps(floats[g][s][1], source.bias(s));
      }
    }
  }
};
template <class U>
struct UnpackedSource {
  const U* block;
  int64_t first, group;
  [[gnu::always_inline]] void seek(int64_t g) { group = g - first; }
  [[gnu::always_inline]] __m512i codes(int q) const { return _mm512_loadu_si512(block->code[group][q]); }
  [[gnu::always_inline]] __m512 scale(int s) const { return _mm512_loadu_ps(block->floats[group][s][0]); }
  [[gnu::always_inline]] __m512 bias(int s) const {
    return _mm512_loadu_ps(block->floats[group][s][U::kBias]);
  }
  [[gnu::always_inline]] int32_t minus_zero(int s) const { return block->minus_zeros[s]; }
};

// Adds groups [begin, end) of kRows rows to acc. F: a QuantForm, or Unpacked.
template <class F, int kRows, class Source>
[[gnu::noinline]] static void dot_rows(Source source, int64_t begin, int64_t end, int64_t cols,
                                       const std::byte* rows, size_t stride, float (*acc)[kTileRows]) {
  constexpr int kQuads = F::kGroup / 4;
  constexpr int kChains = kRows <= 4 ? 2 : 1;  // few rows: two sums per row hide the latency of vpdpbusd
  QuantRow x[kRows];
  __m512 a[kRows];
  INVAR_UNROLL for (int r = 0; r < kRows; ++r) {
    x[r] = quant_row(rows + r * stride, cols);
    a[r] = _mm512_loadu_ps(acc[r]);
  }
  const __m512i magic = _mm512_set1_epi32(kMagicBits);
  for (int64_t g = begin; g < end; ++g) {
    source.seek(g);
    INVAR_UNROLL for (int s = 0; s < F::kScales; ++s) {
      __m512i d[kRows][kChains];
      INVAR_UNROLL for (int r = 0; r < kRows; ++r) {
        d[r][0] = magic;
        if (F::kZeroPoint) {
          d[r][0] = _mm512_dpwssd_epi32(magic, broadcast4(x[r].sums + 2 * g),
                                        _mm512_set1_epi32(source.minus_zero(s)));
        }
        if (kChains == 2) d[r][kChains - 1] = _mm512_setzero_si512();
      }
      INVAR_UNROLL for (int q = s * kQuads; q < (s + 1) * kQuads; ++q) {
        const __m512i w = source.codes(q);
        INVAR_UNROLL for (int r = 0; r < kRows; ++r) {
          __m512i& sum = d[r][q % kChains];
          sum = _mm512_dpbusd_epi32(sum, w, broadcast4(x[r].codes + g * 32 + q * 4));
        }
      }
      const __m512 sw = source.scale(s);
      const __m512 minus = _mm512_mul_ps(sw, _mm512_set1_ps(-kMagic));
      INVAR_UNROLL for (int r = 0; r < kRows; ++r) {
        if (kChains == 2) d[r][0] = _mm512_add_epi32(d[r][0], d[r][kChains - 1]);
        const __m512 sa = _mm512_set1_ps(x[r].scales[g]);
        const __m512 t = _mm512_fmadd_ps(_mm512_castsi512_ps(d[r][0]), sw, minus);
        a[r] = _mm512_fmadd_ps(t, sa, a[r]);
        if constexpr (F::kBias) {
          const float scaled_sum =
              F::kScales == 1 ? x[r].scaled_sums[g] : x[r].scales[g] * float(x[r].sums[2 * g + s]);
          a[r] = _mm512_fmadd_ps(source.bias(s), _mm512_set1_ps(scaled_sum), a[r]);
        }
      }
    }
  }
  INVAR_UNROLL for (int r = 0; r < kRows; ++r) _mm512_storeu_ps(acc[r], a[r]);
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
  using U = Unpacked<F::kGroup, F::kBias>;
  U block;
  for (int64_t g = 0; g < groups; g += kBlockGroups) {
    const int64_t end = g + kBlockGroups < groups ? g + kBlockGroups : groups;
    block.template fill<F>(tile, cols, table, g, int(end - g));
    in_batches<kRowStep>(count, [&](auto n, int r) {
      dot_rows<U, n.value>(UnpackedSource<U>{&block, g, 0}, g, end, cols, rows + r * stride, stride, acc + r);
    });
  }
}

// ---- float forms: four FMA chains per channel by k mod 4

template <class F>
INVAR_MEMBER __m512 float_weights16(const uint8_t* tile, int64_t k) {
  const uint8_t* p = tile + F::column_at(k);
  if (F::kDtype == Dtype::kE4M3) {
    // Bit 7 of the sign-extended byte moves to bits 14 and 15: only 15 is the f16's sign.
    const __m256i wide = _mm256_cvtepi8_epi16(load16(p));
    const __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(int16_t(0xBF80)));
    return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_loadu_ps(tile + F::scales_at(k)));
  }
  if (F::kDtype == Dtype::kF32) return _mm512_loadu_ps(p);
  if (F::kDtype == Dtype::kF16) return f16x16(p);
  return bf16x16(p);
}

static constexpr int kFloatBlock = 256;  // columns widened at a time: 16 KB
using FloatChains = float[4][kTileRows];

// One chain of each row at a time, over columns widened to fp32.
template <int kRows>
[[gnu::noinline]] static void chain_rows(const float (*w)[kTileRows], int cols, const float* x,
                                         int64_t stride, FloatChains* chains) {
  for (int j = 0; j < 4; ++j) {
    __m512 c[kRows];
    INVAR_UNROLL for (int r = 0; r < kRows; ++r) c[r] = _mm512_loadu_ps(chains[r][j]);
    for (int k = j; k < cols; k += 4) {
      const __m512 wk = _mm512_loadu_ps(w[k]);
      INVAR_UNROLL for (int r = 0; r < kRows; ++r) {
        c[r] = _mm512_fmadd_ps(wk, _mm512_set1_ps(x[r * stride + k]), c[r]);
      }
    }
    INVAR_UNROLL for (int r = 0; r < kRows; ++r) _mm512_storeu_ps(chains[r][j], c[r]);
  }
}

// Few rows, straight from the tile, all chains in registers.
template <class F, int kRows>
static void chain_direct(const uint8_t* tile, int64_t cols, const float* x, int64_t stride,
                         FloatChains* chains) {
  __m512 c[kRows][4];
  INVAR_UNROLL for (int i = 0; i < 4 * kRows; ++i) c[i / 4][i % 4] = _mm512_setzero_ps();
  const auto step = [&](int64_t k, int j) __attribute__((always_inline)) {
    const __m512 wk = float_weights16<F>(tile, k);
    INVAR_UNROLL for (int r = 0; r < kRows; ++r) {
      c[r][j] = _mm512_fmadd_ps(wk, _mm512_set1_ps(x[r * stride + k]), c[r][j]);
    }
  };
  int64_t k = 0;
  for (; k + 4 <= cols; k += 4) {
    for (int i = 0; i < F::kElement; ++i)
      prefetch(tile + F::column_at(k) + 64 * i);
    INVAR_UNROLL for (int j = 0; j < 4; ++j) step(k + j, j);
  }
  INVAR_UNROLL for (int j = 0; j < 3; ++j) {
    if (k + j < cols) step(k + j, j);
  }
  INVAR_UNROLL for (int r = 0; r < kRows; ++r) {
    INVAR_UNROLL for (int j = 0; j < 4; ++j) _mm512_storeu_ps(chains[r][j], c[r][j]);
  }
}

template <class F>
[[gnu::noinline]] static void dot_float_tile(const uint8_t* tile, int64_t cols, const float* x,
                                             int64_t stride, int count, float (*acc)[kTileRows]) {
  alignas(64) FloatChains chains[kMaxRows];
  if (count == 1) {
    chain_direct<F, 1>(tile, cols, x, stride, chains);
  } else if (count <= 4) {
    for (int r = 0; r < count; r += 2) {
      if (r + 1 < count) {
        chain_direct<F, 2>(tile, cols, x + r * stride, stride, chains + r);
      } else {
        chain_direct<F, 1>(tile, cols, x + r * stride, stride, chains + r);
      }
    }
  } else {
    std::memset(chains, 0, sizeof *chains * count);
    alignas(64) float block[kFloatBlock][kTileRows];
    for (int64_t k0 = 0; k0 < cols; k0 += kFloatBlock) {
      const int n = int(cols - k0 < kFloatBlock ? cols - k0 : kFloatBlock);
      for (int k = 0; k < n; ++k) {
        prefetch(tile + F::column_at(k0 + k));
        _mm512_storeu_ps(block[k], float_weights16<F>(tile, k0 + k));
      }
      in_batches<kRowStep>(count, [&](auto rows, int r) {
        chain_rows<rows.value>(block, n, x + r * stride + k0, stride, chains + r);
      });
    }
  }
  for (int r = 0; r < count; ++r) {
    __m512 c[4];
    INVAR_UNROLL for (int j = 0; j < 4; ++j) c[j] = _mm512_loadu_ps(chains[r][j]);
    const __m512 sum = _mm512_add_ps(_mm512_add_ps(c[0], c[1]), _mm512_add_ps(c[2], c[3]));
    _mm512_storeu_ps(acc[r], _mm512_add_ps(sum, _mm512_setzero_ps()));
  }
}

// Dot products of 4 columns and 16 channels, with as many sums as hide the latency.
static int64_t dot_peak(int64_t rounds) {
  constexpr int kSums = 12;
  const __m512i w = _mm512_set1_epi8(3);
  __m512i sum[kSums];
  INVAR_UNROLL for (int i = 0; i < kSums; ++i) sum[i] = _mm512_setzero_si512();
  for (int64_t round = 0; round < rounds; ++round) {
    INVAR_UNROLL for (int i = 0; i < kSums; ++i) sum[i] = _mm512_dpbusd_epi32(sum[i], w, w);
  }
  __m512i all = sum[0];
  INVAR_UNROLL for (int i = 1; i < kSums; ++i) all = _mm512_add_epi32(all, sum[i]);
  alignas(64) int32_t lanes[16];
  _mm512_storeu_si512(lanes, all);
  return lanes[0] == 1 ? 0 : rounds * kSums * 64;  // or the sums would not be needed
}

}  // namespace invar::INVAR_ISA
