#pragma once
// Float forms, AVX2 + FMA: four FMA chains per channel by k mod 4. One row keeps all chains in registers;
// more rows widen a block of columns to fp32 in the L1 cache and take one chain at a time, so that 6 rows x
// 16 channels fit.

namespace invar::INVAR_ISA {

template <class F>
INVAR_MEMBER __m256 float_weights8(const uint8_t* tile, int64_t k, int h) {
  const uint8_t* p = tile + F::column_at(k) + 8 * h * F::kElement;
  if (F::kDtype == Dtype::kE4M3) {
    // Bit 7 of the sign-extended byte moves to bits 14 and 15: only 15 is the f16's sign.
    const __m128i wide = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    const __m128i half = _mm_and_si128(_mm_slli_epi16(wide, 7), _mm_set1_epi16(int16_t(0xBF80)));
    return _mm256_mul_ps(_mm256_cvtph_ps(half),
                         _mm256_loadu_ps(reinterpret_cast<const float*>(tile + F::scales_at(k) + 32 * h)));
  }
  if (F::kDtype == Dtype::kF32) return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  if (F::kDtype == Dtype::kF16) return f16x8(p);
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static constexpr int kFloatBlock = 256;  // columns widened at a time: 16 KB
using FloatChains = float[4][kTileRows];

template <int kRows>
[[gnu::noinline]] static void chain_rows(const float (*w)[kTileRows], int cols, const float* x,
                                         int64_t stride, FloatChains* chains) {
  for (int j = 0; j < 4; ++j) {
    __m256 c[kRows][2];
    INVAR_UNROLL for (int r = 0; r < kRows; ++r) {
      INVAR_UNROLL for (int h = 0; h < 2; ++h) c[r][h] = _mm256_load_ps(chains[r][j] + 8 * h);
    }
    for (int k = j; k < cols; k += 4) {
      const __m256 w0 = _mm256_load_ps(w[k]), w1 = _mm256_load_ps(w[k] + 8);
      INVAR_UNROLL for (int r = 0; r < kRows; ++r) {
        const __m256 xk = _mm256_broadcast_ss(x + r * stride + k);
        c[r][0] = _mm256_fmadd_ps(w0, xk, c[r][0]);
        c[r][1] = _mm256_fmadd_ps(w1, xk, c[r][1]);
      }
    }
    INVAR_UNROLL for (int r = 0; r < kRows; ++r) {
      INVAR_UNROLL for (int h = 0; h < 2; ++h) _mm256_store_ps(chains[r][j] + 8 * h, c[r][h]);
    }
  }
}

// One row, straight from the tile.
template <class F>
static void chain_one(const uint8_t* tile, int64_t cols, const float* x, float (*chains)[kTileRows]) {
  __m256 c[4][2];
  INVAR_UNROLL for (int j = 0; j < 4; ++j) c[j][0] = c[j][1] = _mm256_setzero_ps();
  const auto step = [&](int64_t k, int j) __attribute__((always_inline)) {
    const __m256 xk = _mm256_broadcast_ss(x + k);
    c[j][0] = _mm256_fmadd_ps(float_weights8<F>(tile, k, 0), xk, c[j][0]);
    c[j][1] = _mm256_fmadd_ps(float_weights8<F>(tile, k, 1), xk, c[j][1]);
  };
  int64_t k = 0;
  for (; k + 4 <= cols; k += 4) {
    for (int i = 0; i < F::kElement; ++i) {
      prefetch(tile + F::column_at(k) + 64 * i);
    }
    INVAR_UNROLL for (int j = 0; j < 4; ++j) step(k + j, j);
  }
  INVAR_UNROLL for (int j = 0; j < 3; ++j) {
    if (k + j < cols) step(k + j, j);
  }
  INVAR_UNROLL for (int j = 0; j < 4; ++j) {
    INVAR_UNROLL for (int h = 0; h < 2; ++h) _mm256_store_ps(chains[j] + 8 * h, c[j][h]);
  }
}

template <class F>
[[gnu::noinline]] static void dot_float_tile(const uint8_t* tile, int64_t cols, const float* x,
                                             int64_t stride, int count, float (*acc)[kTileRows]) {
  alignas(64) FloatChains chains[kMaxRows];
  if (count == 1) {
    chain_one<F>(tile, cols, x, chains[0]);
  } else {
    std::memset(chains, 0, sizeof *chains * count);
    alignas(64) float block[kFloatBlock][kTileRows];
    for (int64_t k0 = 0; k0 < cols; k0 += kFloatBlock) {
      const int n = int(cols - k0 < kFloatBlock ? cols - k0 : kFloatBlock);
      for (int k = 0; k < n; ++k) {
        prefetch(tile + F::column_at(k0 + k));
        INVAR_UNROLL for (int h = 0; h < 2; ++h) {
          _mm256_store_ps(block[k] + 8 * h, float_weights8<F>(tile, k0 + k, h));
        }
      }
      for (int r = 0; r < count;) {
        const int left = count - r, batches = (left + kRowStep - 1) / kRowStep;
        const int now = (left + batches - 1) / batches;
        const float* row = x + r * stride + k0;
        switch (now) {
          case 1:
            chain_rows<1>(block, n, row, stride, chains + r);
            break;
          case 2:
            chain_rows<2>(block, n, row, stride, chains + r);
            break;
          case 3:
            chain_rows<3>(block, n, row, stride, chains + r);
            break;
          case 4:
            chain_rows<4>(block, n, row, stride, chains + r);
            break;
          case 5:
            chain_rows<5>(block, n, row, stride, chains + r);
            break;
          default:
            chain_rows<6>(block, n, row, stride, chains + r);
            break;
        }
        r += now;
      }
    }
  }
  for (int r = 0; r < count; ++r) {
    INVAR_UNROLL for (int h = 0; h < 2; ++h) {
      __m256 c[4];
      INVAR_UNROLL for (int j = 0; j < 4; ++j) c[j] = _mm256_load_ps(chains[r][j] + 8 * h);
      const __m256 sum = _mm256_add_ps(_mm256_add_ps(c[0], c[1]), _mm256_add_ps(c[2], c[3]));
      _mm256_store_ps(acc[r] + 8 * h, _mm256_add_ps(sum, _mm256_setzero_ps()));
    }
  }
}

}  // namespace invar::INVAR_ISA
