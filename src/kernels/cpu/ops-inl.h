#pragma once
// Element-wise and row kernels of the kernel table (docs/numerics.md, sections 1, 4 and 8), written once over
// the 16-lane vectors of the set being compiled. Row reductions keep lane l for elements l, l+16, ... in
// ascending order.

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/functions-inl.h"
#include "tensor/exact_math.h"
#include "tensor/row_kernels.h"

namespace invar::INVAR_ISA {

// f(offset, n): blocks of 16 elements, then the rest with n < 16. f is called with the literal 16 in the
// loop, so that whole blocks take the unmasked path.
template <class F>
INVAR_INLINE void for_blocks(int64_t n, F f) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    f(i, 16);
  if (i < n) f(i, int(n - i));
}
INVAR_INLINE Vf load_up_to(const float* p, int n) {
  return n == 16 ? load(p) : load_n(p, n);
}
INVAR_INLINE void store_up_to(float* p, Vf x, int n) {
  if (n == 16) {
    store(p, x);
  } else {
    store_n(p, x, n);
  }
}

template <Vf (*f)(Vf)>
static void map(const float* x, int64_t n, float* y) {
  for_blocks(n, [=](int64_t i, int k)
                    __attribute__((always_inline)) { store_up_to(y + i, f(load_up_to(x + i, k)), k); });
}

static void add_rows(const float* x, const float* y, int64_t n, float* out) {
  for_blocks(n, [=](int64_t i, int k) __attribute__((always_inline)) {
    store_up_to(out + i, add(load_up_to(x + i, k), load_up_to(y + i, k)), k);
  });
}

static void gated_silu(const float* gate, const float* up, int64_t n, float* out) {
  for_blocks(n, [=](int64_t i, int k) __attribute__((always_inline)) {
    store_up_to(out + i, mul(silu(load_up_to(gate + i, k)), load_up_to(up + i, k)), k);
  });
}

static void gated_gelu(const float* gate, const float* up, int64_t n, float* out) {
  for_blocks(n, [=](int64_t i, int k) __attribute__((always_inline)) {
    store_up_to(out + i, mul(gelu_tanh(load_up_to(gate + i, k)), load_up_to(up + i, k)), k);
  });
}

static void gated_clamped(const float* gate, const float* up, float alpha, float limit, int64_t n,
                          float* out) {
  const Vf a = set1(alpha), most = set1(limit);
  for_blocks(n, [=](int64_t i, int k) __attribute__((always_inline)) {
    Vf g = load_up_to(gate + i, k), u = load_up_to(up + i, k);
    g = select(gt(g, most), most, g);
    u = select(gt(u, most), most, select(lt(u, neg(most)), neg(most), u));
    const Vf y = mul(mul(g, sigmoid(mul(g, a))), add(u, set1(1.0f)));
    store_up_to(out + i, y, k);
  });
}

static void scale_row(const float* x, float factor, int64_t n, float* out) {
  const Vf f = set1(factor);
  for_blocks(n, [=](int64_t i, int k) __attribute__((always_inline)) {
    store_up_to(out + i, mul(load_up_to(x + i, k), f), k);
  });
}

static void multiply_row(const float* x, const float* weight, int64_t n, float* out) {
  for_blocks(n, [=](int64_t i, int k) __attribute__((always_inline)) {
    store_up_to(out + i, mul(load_up_to(x + i, k), load_up_to(weight + i, k)), k);
  });
}

static void add_scaled_row(const float* x, const float* y, float factor, int64_t n, float* out) {
  const Vf f = set1(factor);
  for_blocks(n, [=](int64_t i, int k) __attribute__((always_inline)) {
    store_up_to(out + i, fma(load_up_to(y + i, k), f, load_up_to(x + i, k)), k);
  });
}

static void softcap_row(const float* x, float cap, int64_t n, float* out) {
  const Vf c = set1(cap);
  for_blocks(n, [=](int64_t i, int k) __attribute__((always_inline)) {
    store_up_to(out + i, softcap(load_up_to(x + i, k), c), k);
  });
}

INVAR_INLINE float sum_of_squares(const float* x, int64_t n, uint8_t* fault) {
  Vf squares = zero();
  for_blocks(n, [&](int64_t i, int k) __attribute__((always_inline)) {
    const Vf v = load_up_to(x + i, k);  // missing lanes are +0 and add nothing to a sum that is never -0
    squares = fma(v, v, squares);
  });
  const float sum = reduce_add(squares);
  if ((bits_of(sum) & 0x7FFFFFFF) >= 0x7F800000) mark_fault(fault);
  return sum;
}

static void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* y, uint8_t* fault) {
  const float v = sum_of_squares(x, n, fault) / float(n) + eps;
  const Vf r = set1(1.0f / __builtin_sqrtf(v));
  if (weight == nullptr) {
    for_blocks(n, [=](int64_t i, int k) __attribute__((always_inline)) {
      store_up_to(y + i, mul(load_up_to(x + i, k), r), k);
    });
    return;
  }
  for_blocks(n, [=](int64_t i, int k) __attribute__((always_inline)) {
    store_up_to(y + i, mul(mul(load_up_to(x + i, k), r), load_up_to(weight + i, k)), k);
  });
}

static void match_rms(const float* x, const float* like, float least_mean_square, int64_t n, float* out,
                      uint8_t* fault) {
  const float wanted = __builtin_sqrtf(sum_of_squares(like, n, fault) / float(n));
  const float own = sum_of_squares(x, n, fault) / float(n);
  scale_row(x, wanted / __builtin_sqrtf(own > least_mean_square ? own : least_mean_square), n, out);
}

struct Moments {
  float mean, squares;  // of the differences from the mean
};
INVAR_INLINE Moments moments(const float* x, int64_t n, uint8_t* fault) {
  Vf sums = zero();
  for_blocks(
      n, [&](int64_t i, int k) __attribute__((always_inline)) { sums = add(sums, load_up_to(x + i, k)); });
  const float m = reduce_add(sums) / float(n);
  const Vf mean = set1(m);
  Vf squares = zero();
  for_blocks(n, [&](int64_t i, int k) __attribute__((always_inline)) {
    const Vf d = sub(load_up_to(x + i, k), mean);
    squares = k == 16 ? fma(d, d, squares) : select(first_n(k), fma(d, d, squares), squares);
  });
  const float sum = reduce_add(squares);
  if ((bits_of(sum) & 0x7FFFFFFF) >= 0x7F800000) mark_fault(fault);
  return {m, sum};
}

static void sparsify(const float* x, float deviations, int64_t n, float* out, uint8_t* fault) {
  const Moments m = moments(x, n, fault);
  const float deviation = __builtin_sqrtf(m.squares / float(n));
  const Vf cutoff = set1(m.mean + deviation * deviations);
  for_blocks(n, [=](int64_t i, int k) __attribute__((always_inline)) {
    const Vf d = sub(load_up_to(x + i, k), cutoff);
    store_up_to(out + i, select(gt(d, zero()), d, zero()), k);
  });
}

static void layer_norm(const float* x, const float* weight, const float* bias, float eps, int64_t n, float* y,
                       uint8_t* fault) {
  const Moments m = moments(x, n, fault);
  const Vf mean = set1(m.mean);
  const float v = m.squares / float(n) + eps;
  const Vf r = set1(1.0f / __builtin_sqrtf(v));
  for_blocks(n, [=](int64_t i, int k) __attribute__((always_inline)) {
    const Vf d = mul(sub(load_up_to(x + i, k), mean), r);
    store_up_to(y + i, fma(d, load_up_to(weight + i, k), load_up_to(bias + i, k)), k);
  });
}

static float exp_sum(const float* x, int64_t n, float max, float* e) {
  const Vf m = set1(max);
  Vf sums = zero();
  for_blocks(n, [&](int64_t i, int k) __attribute__((always_inline)) {
    const Vf v = exp_or_zero(sub(load_up_to(x + i, k), m));
    sums = add(sums, k == 16 ? v : select(first_n(k), v, zero()));
    if (e != nullptr) store_up_to(e + i, v, k);
  });
  return reduce_add(sums);
}

static void divide(const float* x, int64_t n, float divisor, float* y) {
  const Vf d = set1(divisor);
  for_blocks(n, [=](int64_t i, int k) __attribute__((always_inline)) {
    const Vf v = load_up_to(x + i, k), q = clamp(div(v, d), -0x1.fffffep127f, 0x1.fffffep127f);
    store_up_to(y + i, select(not_finite(v), v, q), k);
  });
}

// Sums in double, lane by lane as in exp_sum; -infinity and missing lanes become +0 before they are terms.
INVAR_INLINE Vf finite_or_zero(Vf x, int n) {
  const Mask above = gt(x, set1(-__builtin_inff()));
  return select(n == 16 ? above : both(above, first_n(n)), x, zero());
}
template <class Term>
INVAR_INLINE double double_sum(const float* x, int64_t n, Term term) {
  Vd sums = set1_d(0);
  for_blocks(n, [&](int64_t i, int k)
                    __attribute__((always_inline)) { sums = add(sums, term(load_up_to(x + i, k), k)); });
  return reduce_add(sums);
}
static double sum(const float* x, int64_t n) {
  return double_sum(
      x, n, [](Vf v, int k) __attribute__((always_inline)) { return to_double(finite_or_zero(v, k)); });
}
static double square_sum(const float* x, int64_t n, double mean) {
  const Vd m = set1_d(mean);
  return double_sum(x, n, [m](Vf v, int k) __attribute__((always_inline)) {
    const Mask above = gt(v, set1(-__builtin_inff()));
    const Vf one = select(k == 16 ? above : both(above, first_n(k)), set1(1.0f), zero());
    const Vd d = sub(to_double(finite_or_zero(v, k)), m);
    return mul(mul(d, d), to_double(one));
  });
}
static WeightSums weight_sums(const float* x, int64_t n, float max) {
  const Vf m = set1(max);
  Vf weights = zero();
  const double distances = double_sum(x, n, [m, &weights](Vf v, int k) __attribute__((always_inline)) {
    const Vf d = sub(v, m), weight = exp_or_zero(d);
    weights = add(weights, k == 16 ? weight : select(first_n(k), weight, zero()));
    return mul(to_double(weight), to_double(finite_or_zero(d, k)));
  });
  return {reduce_add(weights), distances};
}

static void softmax(const float* x, int64_t n, float* p) {
  if (n == 0) return;
  const float lowest = -__builtin_inff();
  Vf highest = set1(lowest);
  for_blocks(n, [&](int64_t i, int k) __attribute__((always_inline)) {
    const Vf v = load_up_to(x + i, k);
    highest = max(k == 16 ? v : select(first_n(k), v, highest), highest);
  });
  const Vf sum = set1(exp_sum(x, n, reduce_max(highest), p));
  for_blocks(n, [=](int64_t i, int k) __attribute__((always_inline)) {
    store_up_to(p + i, div(load_up_to(p + i, k), sum), k);
  });
}

// NaN never wins; 0 when nothing exceeds -infinity.
static int64_t argmax(const float* x, int64_t n) {
  // Blocks of 2^20 elements keep indices in 32 bits.
  constexpr int64_t kSpan = 1 << 20;
  float best = -__builtin_inff();
  int64_t best_index = 0;
  for (int64_t start = 0; start < n; start += kSpan) {
    const int64_t count = n - start < kSpan ? n - start : kSpan;
    Vf value = set1(best);
    Vi index = set1_i(-1);  // -1: nothing here beat what came before
    for_blocks(count, [&](int64_t i, int k) __attribute__((always_inline)) {
      const Vf v = load_up_to(x + start + i, k);
      Mask better = gt(v, value);
      if (k != 16) better = both(better, first_n(k));
      value = select(better, v, value);
      index = select(better, add_i(set1_i(int32_t(i)), lane_ids()), index);
    });
    float values[16];
    int32_t indices[16];
    store(values, value);
    store_i(indices, index);
    int32_t winner = -1;
    for (int l = 0; l < 16; l++) {
      if (indices[l] < 0) continue;
      if (values[l] > best || (values[l] == best && winner >= 0 && indices[l] < winner)) {
        best = values[l];
        winner = indices[l];
      }
    }
    if (winner >= 0) best_index = start + winner;
  }
  return best_index;
}

static bool all_finite(const float* x, int64_t n) {
  Vi magnitude = set1_i(0);
  for_blocks(n, [&](int64_t i, int k) __attribute__((always_inline)) {
    const Vi a = and_i(as_int(load_up_to(x + i, k)), set1_i(0x7FFFFFFF));
    magnitude = select(gt_i(a, magnitude), a, magnitude);
  });
  return reduce_max_i(magnitude) < 0x7F800000;
}

static void rope_table(const float* inv_freq, int dim, int32_t position, float attention_factor, bool scaled,
                       float* cos, float* sin) {
  for (int i = 0; i < dim / 2; i++) {
    const float angle = float(position) * inv_freq[i];
    double s, c;
    sincos64(double(angle), &s, &c);
    cos[i] = float(c);
    sin[i] = float(s);
    if (scaled) {
      cos[i] = cos[i] * attention_factor;
      sin[i] = sin[i] * attention_factor;
    }
  }
}

static void rope(float* x, int heads, int head_dim, int dim, const float* cos, const float* sin) {
  const int half = dim / 2;
  for (int h = 0; h < heads; h++) {
    float* first = x + int64_t(h) * head_dim;
    float* second = first + half;
    for_blocks(half, [=](int64_t i, int k) __attribute__((always_inline)) {
      const Vf a = load_up_to(first + i, k), b = load_up_to(second + i, k);
      const Vf c = load_up_to(cos + i, k), s = load_up_to(sin + i, k);
      store_up_to(first + i, fma(a, c, neg(mul(b, s))), k);
      store_up_to(second + i, fma(a, s, mul(b, c)), k);
    });
  }
}

// Few families and few elements: one pair at a time.
static void rope_adjacent(float* x, int heads, int head_dim, int dim, const float* cos, const float* sin) {
  for (int h = 0; h < heads; h++) {
    float* pair = x + int64_t(h) * head_dim;
    for (int i = 0; i < dim / 2; i++, pair += 2) {
      const float a = pair[0], b = pair[1];
      pair[0] = fma_f32(a, cos[i], -(b * sin[i]));
      pair[1] = fma_f32(a, sin[i], b * cos[i]);
    }
  }
}

}  // namespace invar::INVAR_ISA
