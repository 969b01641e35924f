#pragma once
// One block of queries against one page: scores, softmax step, weighted values (docs/numerics.md, section 5),
// over the 16-lane vectors of the set being compiled. A query is one (row, query head); the queries of a
// block share every load of keys and values.

#include <cstdint>

#include "base/check.h"
#include "kernels/cpu/functions-inl.h"
#include "kv/codec.h"
#include "tensor/exact_math.h"

namespace invar::INVAR_ISA {

// Queries of a block: their accumulators fill the registers but for the operands.
static constexpr int kAccumulators = kVfRegisters == 32 ? 24 : kVfRegisters - 2;
static constexpr int kBlock = kVfRegisters == 4 ? 2 : 6;
static constexpr int kLargestBlock = 8;  // of any set; sizes scratch

struct FloatSource {
  const float* p;
  template <int W>
  __attribute__((always_inline)) void ask(int64_t) const {}
  __attribute__((always_inline)) Vf at(int64_t i) const { return load(p + i); }
};

// Running softmax of n queries: O [n][stride], m [n], l [n].
struct State {
  float* o;
  float* m;
  float* l;
  int stride;
};

// One block of queries against one page.
struct BlockTask {
  const float* q;  // [head_dim][Q]
  int head_dim;
  int value_stride;  // elements between positions of the values
  float scale;
  float softcap;                                 // 0: none
  int begin[kLargestBlock], end[kLargestBlock];  // slots that each query sees
  int first, last;                               // union of them
  State state;                                   // of the block's first query
  bool* bad;                                     // [Q]: set where a score is NaN or infinite
};

// 16-lane vectors of an accumulator tile beside Q queries.
constexpr int tile_width(int queries, int limit) {
  int width = 1;
  while (width * 2 <= limit && width * 2 * queries <= kAccumulators)
    width *= 2;
  return width;
}

// acc[i][w] += q(i) * v(w). The order keeps few operands beside the accumulators.
template <int Q, int W, class Broadcast, class Load>
INVAR_INLINE void outer_product(Vf (&acc)[Q][W], Broadcast q, Load v) {
  if constexpr (W == 1) {
    const Vf x = v(0);
    for (int i = 0; i < Q; i++)
      acc[i][0] = fma(q(i), x, acc[i][0]);
  } else {
    Vf x[Q];
    for (int i = 0; i < Q; i++)
      x[i] = q(i);
    for (int w = 0; w < W; w++) {
      const Vf y = v(w);
      for (int i = 0; i < Q; i++)
        acc[i][w] = fma(x[i], y, acc[i][w]);
    }
  }
}

// s [Q][64]: scores of positions [16*column, 16*(column+P)), scaled.
template <int Q, int P, class Keys>
INVAR_INLINE void score_tile(const BlockTask& t, Keys keys, int column, float* s) {
  int64_t step = int64_t(column / P) * t.head_dim;
  for (int parity = 0; parity < 2; parity++) {
    Vf acc[Q][P];
    for (int i = 0; i < Q; i++) {
      for (int w = 0; w < P; w++)
        acc[i][w] = zero();
    }
    for (int d = parity; d < t.head_dim; d += 2, step++) {
      keys.template ask<P>(step);
      outer_product<Q, P>(
          acc, [&](int i) __attribute__((always_inline)) { return set1(t.q[d * Q + i]); },
          [&](int w) __attribute__((always_inline)) {
            return keys.at(int64_t(d) * kPageTokens + (column + w) * 16);
          });
    }
    for (int i = 0; i < Q; i++) {
      for (int w = 0; w < P; w++) {
        float* at = s + i * kPageTokens + (column + w) * 16;
        store(at, parity == 0 ? acc[i][w] : mul(add(load(at), acc[i][w]), set1(t.scale)));
      }
    }
    // The even sums wait in memory: kept in registers they would push out the odd ones.
    __asm__ volatile("" ::: "memory");
  }
}

// O = O*c + sum of p_j V_j for W vectors of head dim from `dim` on.
template <int Q, int W, class Values>
INVAR_INLINE void value_tile(const BlockTask& t, Values values, int dim, const float* p, const float* c) {
  Vf acc[Q][W];
  for (int i = 0; i < Q; i++) {
    for (int w = 0; w < W; w++) {
      acc[i][w] = mul(load(t.state.o + i * t.state.stride + dim + w * 16), set1(c[i]));
    }
  }
  const int64_t step = int64_t(dim / 16 / W) * kPageTokens;
  for (int j = t.first; j < t.last; j++) {
    values.template ask<W>(step + j);
    outer_product<Q, W>(
        acc, [&](int i) __attribute__((always_inline)) { return set1(p[i * kPageTokens + j]); },
        [&](int w)
            __attribute__((always_inline)) { return values.at(int64_t(j) * t.value_stride + dim + w * 16); });
  }
  for (int i = 0; i < Q; i++) {
    for (int w = 0; w < W; w++)
      store(t.state.o + i * t.state.stride + dim + w * 16, acc[i][w]);
  }
}

template <int Q, class Keys, class Values>
static void attend_block(const BlockTask& t, Keys keys, Values values) {
  constexpr int kLanes = kPageTokens / 16;
  alignas(64) float s[Q * kPageTokens];
  alignas(64) float next[16], shrink[16];

  // Whole tiles of positions; those outside every query's view are masked below whatever they hold.
  constexpr int P = tile_width(Q, kLanes);
  for (int column = t.first / 16 / P * P; column * 16 < t.last; column += P) {
    score_tile<Q, P>(t, keys, column, s);
  }

  store(shrink, zero());
  for (int i = 0; i < Q; i++) {
    float* row = s + i * kPageTokens;
    Vf highest = set1(-__builtin_inff()), check = zero();
    const Vf cap = set1(t.softcap);
    for (int b = 0; b < kLanes; b++) {
      const bool whole = t.begin[i] <= b * 16 && b * 16 + 16 <= t.end[i];
      Vf x;
      if (whole) {
        x = load(row + b * 16);
        check = fma(x, zero(), check);  // NaN from any NaN or infinity
        if (t.softcap > 0) {
          x = softcap(x, cap);
          store(row + b * 16, x);
        }
      } else if (t.begin[i] < b * 16 + 16 && b * 16 < t.end[i]) {
        const Vi slot = add_i(lane_ids(), set1_i(b * 16));
        const Mask seen = both(ge_i(slot, set1_i(t.begin[i])), gt_i(set1_i(t.end[i]), slot));
        x = load(row + b * 16);
        check = fma(select(seen, x, zero()), zero(), check);
        if (t.softcap > 0) x = softcap(x, cap);
        x = select(seen, x, set1(-__builtin_inff()));
        store(row + b * 16, x);
      } else {
        x = set1(-__builtin_inff());
        store(row + b * 16, x);
      }
      highest = max(x, highest);
    }
    if (any(is_nan(check))) t.bad[i] = true;
    const float page = reduce_max(highest), m = t.state.m[i];
    next[i] = page > m ? page : m;
    shrink[i] = m - next[i];
  }
  store(shrink, exp_or_zero(load(shrink)));
  for (int i = 0; i < Q; i++) {
    float* row = s + i * kPageTokens;
    Vf sums = zero();
    for (int b = 0; b < kLanes; b++) {
      const Vf p = exp_or_zero(sub(load(row + b * 16), set1(next[i])));
      store(row + b * 16, p);
      sums = add(sums, p);
    }
    t.state.l[i] = fma_f32(t.state.l[i], shrink[i], reduce_add(sums));
    t.state.m[i] = next[i];
  }

  constexpr int kWide = tile_width(Q, 4);
  int dim = 0;
  for (; dim + kWide * 16 <= t.state.stride; dim += kWide * 16)
    value_tile<Q, kWide>(t, values, dim, s, shrink);
  for (; dim < t.state.stride; dim += 16)
    value_tile<Q, 1>(t, values, dim, s, shrink);
}

template <class Keys, class Values>
static void attend_block_of(int queries, const BlockTask& t, Keys keys, Values values) {
  switch (queries) {
    case 1:
      return attend_block<1>(t, keys, values);
    case 2:
      return attend_block<2>(t, keys, values);
    default:
      break;
  }
  if constexpr (kBlock > 2) {
    switch (queries) {
      case 3:
        return attend_block<3>(t, keys, values);
      case 4:
        return attend_block<4>(t, keys, values);
      case 5:
        return attend_block<5>(t, keys, values);
      case 6:
        return attend_block<6>(t, keys, values);
      default:
        break;
    }
  }
  CHECK(false);
}

}  // namespace invar::INVAR_ISA
