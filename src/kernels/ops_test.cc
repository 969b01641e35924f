// Element-wise and row kernels: every set = the specification bit for bit, the specification = the
// definitions of tensor/exact_math.h.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/fp_environment.h"
#include "kernels/test_sets.h"
#include "tensor/exact_math.h"
#include "tensor/noise.h"

namespace invar {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<int64_t> sizes() {
  std::vector<int64_t> s;
  for (int64_t n = 1; n <= 67; n++)
    s.push_back(n);
  s.insert(s.end(), {576, 1536, 49152});
  return s;
}

std::vector<float> normals(int64_t n, uint64_t seed, float scale = 4) {
  TestRandom random(seed);
  std::vector<float> x(n);
  for (float& v : x)
    v = random.normal() * scale;
  return x;
}

// Every kind of value a function can meet; NaN last.
std::vector<float> special_values() {
  std::vector<float> x;
  for (float v : {0.0f,   0x1p-149f,  0x1p-130f,  0x1p-126f,      1e-30f,  1e-10f,          0.25f,  0.5f,
                  0.55f,  0.5500001f, 1.0f,       2.0f,           10.0f,   17.5f,           49.99f, 50.0f,
                  50.01f, 86.9f,      87.0f,      87.1f,          88.0f,   88.1f,           1e3f,   1e10f,
                  1e20f,  1e30f,      0x1.dbp-1f, 0x1.db0002p-1f, 3.4e38f, 0x1.fffffep127f, kInf}) {
    x.push_back(v);
    x.push_back(-v);
  }
  x.push_back(kNan);
  return x;
}

using Scalar = float (*)(float);
constexpr Scalar kDefinitions[] = {exp_f32,      sigmoid_f32,   silu_f32, tanh_f32,
                                   softplus_f32, gelu_tanh_f32, erf_f32,  gelu_erf_f32};

class Ops : public EverySet {
  FpEnvironment environment_;
};
INVAR_EVERY_SET(Ops);

TEST_P(Ops, unary_functions_have_the_bits_of_their_definitions) {
  for (size_t f = 0; f < size_t(Unary::kCount); f++) {
    std::vector<float> x = special_values();
    const auto more = normals(20000, f, 30);
    x.insert(x.end(), more.begin(), more.end());
    const auto small = normals(5000, 100 + f, 0.5f);
    x.insert(x.end(), small.begin(), small.end());
    std::vector<float> want(x.size()), got(x.size());
    for (size_t i = 0; i < x.size(); i++)
      want[i] = kDefinitions[f](x[i]);
    set().unary[f](x.data(), int64_t(x.size()), got.data());
    const int64_t at = first_difference(want.data(), got.data(), int64_t(x.size()));
    ASSERT_EQ(at, -1) << unary_name(Unary(f)) << "(" << x[at] << ") = " << got[at] << ", not " << want[at];
  }
}

TEST_P(Ops, elementwise_kernels_write_exactly_n_elements) {
  for (int64_t n : sizes()) {
    const auto x = normals(n, n), y = normals(n, n + 1000);
    std::vector<float> got(n + 16, 77.0f), want(n);
    set().add(x.data(), y.data(), n, got.data());
    for (int64_t i = 0; i < n; i++)
      want[i] = x[i] + y[i];
    ASSERT_EQ(first_difference(want.data(), got.data(), n), -1) << n;
    for (int i = 0; i < 16; i++)
      ASSERT_EQ(got[n + i], 77.0f);

    set().gated_silu(x.data(), y.data(), n, got.data());
    for (int64_t i = 0; i < n; i++)
      want[i] = silu_f32(x[i]) * y[i];
    ASSERT_EQ(first_difference(want.data(), got.data(), n), -1) << n;
    for (int i = 0; i < 16; i++)
      ASSERT_EQ(got[n + i], 77.0f);

    set().gated_gelu(x.data(), y.data(), n, got.data());
    for (int64_t i = 0; i < n; i++)
      want[i] = gelu_tanh_f32(x[i]) * y[i];
    ASSERT_EQ(first_difference(want.data(), got.data(), n), -1) << n;

    set().gated_clamped(x.data(), y.data(), 1.702f, 0.9f, n, got.data());
    for (int64_t i = 0; i < n; i++) {
      const float g = std::min(x[i], 0.9f), u = std::clamp(y[i], -0.9f, 0.9f);
      want[i] = (g * sigmoid_f32(g * 1.702f)) * (u + 1.0f);
    }
    ASSERT_EQ(first_difference(want.data(), got.data(), n), -1) << n;

    set().scale(x.data(), 0.37f, n, got.data());
    for (int64_t i = 0; i < n; i++)
      want[i] = x[i] * 0.37f;
    ASSERT_EQ(first_difference(want.data(), got.data(), n), -1) << n;

    set().multiply(x.data(), y.data(), n, got.data());
    for (int64_t i = 0; i < n; i++)
      want[i] = x[i] * y[i];
    ASSERT_EQ(first_difference(want.data(), got.data(), n), -1) << n;

    set().add_scaled(x.data(), y.data(), 0.37f, n, got.data());
    for (int64_t i = 0; i < n; i++)
      want[i] = fma_f32(0.37f, y[i], x[i]);
    ASSERT_EQ(first_difference(want.data(), got.data(), n), -1) << n;
    for (int i = 0; i < 16; i++)
      ASSERT_EQ(got[n + i], 77.0f);

    set().softcap(x.data(), 2.7f, n, got.data());
    for (int64_t i = 0; i < n; i++)
      want[i] = 2.7f * tanh_f32(x[i] / 2.7f);
    ASSERT_EQ(first_difference(want.data(), got.data(), n), -1) << n;
    for (int i = 0; i < 16; i++)
      ASSERT_EQ(got[n + i], 77.0f);

    set().unary[0](x.data(), n, got.data());
    for (int i = 0; i < 16; i++)
      ASSERT_EQ(got[n + i], 77.0f);
  }
}

TEST_P(Ops, add_may_write_over_its_input) {
  auto x = normals(67, 1);
  const auto y = normals(67, 2);
  std::vector<float> want(67);
  for (int i = 0; i < 67; i++)
    want[i] = x[i] + y[i];
  set().add(x.data(), y.data(), 67, x.data());
  EXPECT_EQ(first_difference(want.data(), x.data(), 67), -1);
}

// Section 1: 16 lanes in ascending order, then the tree.
float lanes_then_tree(const std::vector<float>& x, bool squares) {
  float s[16] = {};
  for (size_t k = 0; k < x.size(); k++)
    s[k % 16] = squares ? fma_f32(x[k], x[k], s[k % 16]) : s[k % 16] + x[k];
  for (int w = 8; w >= 1; w /= 2) {
    for (int l = 0; l < w; l++)
      s[l] += s[l + w];
  }
  return s[0];
}

TEST_P(Ops, rms_norm_is_the_rule_of_section_4) {
  for (int64_t n : sizes()) {
    const auto x = normals(n, n), w = normals(n, n + 5, 1);
    std::vector<float> want(n), got(n + 16, 77.0f);
    uint8_t fault = 0;
    set().rms_norm(x.data(), w.data(), 1e-5f, n, got.data(), &fault);
    const float r = 1.0f / std::sqrt(lanes_then_tree(x, true) / float(n) + 1e-5f);
    for (int64_t i = 0; i < n; i++)
      want[i] = x[i] * r * w[i];
    ASSERT_EQ(first_difference(want.data(), got.data(), n), -1) << n;
    set().rms_norm(x.data(), nullptr, 1e-5f, n, got.data(), &fault);
    for (int64_t i = 0; i < n; i++)
      want[i] = x[i] * r;
    ASSERT_EQ(first_difference(want.data(), got.data(), n), -1) << n;
    ASSERT_EQ(got[n], 77.0f);
    ASSERT_EQ(fault, 0);
  }
}

TEST_P(Ops, rms_norm_faults_on_nan_infinity_and_an_infinite_sum) {
  const std::vector<float> w(67, 1.0f);
  for (float bad : {kNan, kInf, -kInf, 3e38f}) {
    for (int at : {0, 15, 16, 66}) {
      auto x = normals(67, 3);
      x[at] = bad;
      std::vector<float> y(67);
      uint8_t fault = 0;
      set().rms_norm(x.data(), w.data(), 1e-5f, 67, y.data(), &fault);
      EXPECT_EQ(fault, 1) << bad << " at " << at;
    }
  }
  std::vector<float> zeros(67, 0.0f), y(67);
  uint8_t fault = 0;
  set().rms_norm(zeros.data(), w.data(), 1e-5f, 67, y.data(), &fault);
  EXPECT_EQ(fault, 0);
  fault = 1;  // never cleared
  set().rms_norm(w.data(), w.data(), 1e-5f, 67, y.data(), &fault);
  EXPECT_EQ(fault, 1);
}

TEST_P(Ops, layer_norm_is_the_rule_of_section_4) {
  for (int64_t n : sizes()) {
    auto x = normals(n, n);
    const auto w = normals(n, n + 5, 1), b = normals(n, n + 6, 1);
    for (float& v : x)
      v += 3;
    std::vector<float> want(n), centred(n), got(n + 16, 77.0f);
    uint8_t fault = 0;
    set().layer_norm(x.data(), w.data(), b.data(), 1e-5f, n, got.data(), &fault);
    const float mean = lanes_then_tree(x, false) / float(n);
    for (int64_t i = 0; i < n; i++)
      centred[i] = x[i] - mean;
    const float r = 1.0f / std::sqrt(lanes_then_tree(centred, true) / float(n) + 1e-5f);
    for (int64_t i = 0; i < n; i++)
      want[i] = fma_f32(centred[i] * r, w[i], b[i]);
    ASSERT_EQ(first_difference(want.data(), got.data(), n), -1) << n;
    ASSERT_EQ(got[n], 77.0f);
    ASSERT_EQ(fault, 0);
    for (float bad : {kNan, kInf, -kInf}) {
      auto y = x;
      y[n / 2] = bad;
      fault = 0;
      set().layer_norm(y.data(), w.data(), b.data(), 1e-5f, n, got.data(), &fault);
      ASSERT_EQ(fault, 1) << bad << " among " << n;
    }
  }
}

TEST_P(Ops, match_rms_is_the_rule_of_section_4) {
  for (int64_t n : sizes()) {
    for (const float size : {3.0f, 1e-4f}) {  // the second lies below the least
      const auto x = normals(n, n, size), like = normals(n, n + 5, 2);
      std::vector<float> want(n), got(n + 16, 77.0f);
      uint8_t fault = 0;
      set().match_rms(x.data(), like.data(), 1e-5f, n, got.data(), &fault);
      const float own = std::max(lanes_then_tree(x, true) / float(n), 1e-5f);
      const float factor = std::sqrt(lanes_then_tree(like, true) / float(n)) / std::sqrt(own);
      for (int64_t i = 0; i < n; i++)
        want[i] = x[i] * factor;
      ASSERT_EQ(first_difference(want.data(), got.data(), n), -1) << n;
      ASSERT_EQ(got[n], 77.0f);
      ASSERT_EQ(fault, 0);
      for (const bool first : {false, true}) {
        auto bad = first ? x : like;
        bad[n / 2] = kInf;
        set().match_rms(first ? bad.data() : x.data(), first ? like.data() : bad.data(), 1e-5f, n, got.data(),
                        &fault);
        ASSERT_EQ(fault, 1);
        fault = 0;
      }
    }
  }
}

TEST_P(Ops, sparsify_is_the_rule_of_section_4) {
  for (int64_t n : sizes()) {
    const auto x = normals(n, n);
    std::vector<float> want(n), centred(n), got(n + 16, 77.0f);
    uint8_t fault = 0;
    set().sparsify(x.data(), 0.7f, n, got.data(), &fault);
    const float mean = lanes_then_tree(x, false) / float(n);
    for (int64_t i = 0; i < n; i++)
      centred[i] = x[i] - mean;
    const float deviation = std::sqrt(lanes_then_tree(centred, true) / float(n));
    for (int64_t i = 0; i < n; i++)
      want[i] = std::max(x[i] - (mean + deviation * 0.7f), 0.0f);
    ASSERT_EQ(first_difference(want.data(), got.data(), n), -1) << n;
    ASSERT_EQ(got[n], 77.0f);
    ASSERT_EQ(fault, 0);
    auto bad = x;
    bad[n / 2] = kNan;
    set().sparsify(bad.data(), 0.7f, n, got.data(), &fault);
    ASSERT_EQ(fault, 1);
  }
}

TEST_P(Ops, softmax_is_exp_or_zero_over_the_lane_sum) {
  for (int64_t n : sizes()) {
    auto x = normals(n, n, 20);
    if (n > 3) x[n / 2] = -kInf;
    std::vector<float> e(n), got(n + 16, 77.0f);
    float m = -kInf;
    for (float v : x)
      m = v > m ? v : m;
    for (int64_t i = 0; i < n; i++)
      e[i] = exp_or_zero_f32(x[i] - m);
    const float sum = lanes_then_tree(e, false);
    for (float& v : e)
      v = v / sum;
    set().rows.softmax(x.data(), n, got.data());
    ASSERT_EQ(first_difference(e.data(), got.data(), n), -1) << n;
    ASSERT_EQ(got[n], 77.0f);
    double total = 0;
    for (int64_t i = 0; i < n; i++)
      total += got[i];
    EXPECT_NEAR(total, 1.0, 1e-5);
  }
}

TEST_P(Ops, exp_sum_gives_the_lane_sum_and_each_term) {
  for (int64_t n : sizes()) {
    auto x = normals(n, n, 20);
    if (n > 3) x[2] = -kInf;
    float m = x[0];
    for (float v : x)
      m = v > m ? v : m;
    std::vector<float> want(n), e(n + 16, 77.0f);
    for (int64_t i = 0; i < n; i++)
      want[i] = exp_or_zero_f32(x[i] - m);
    const float sum = set().rows.exp_sum(x.data(), n, m, e.data());
    EXPECT_EQ(bits_of(sum), bits_of(lanes_then_tree(want, false))) << n;
    EXPECT_EQ(bits_of(set().rows.exp_sum(x.data(), n, m, nullptr)), bits_of(sum)) << n;
    ASSERT_EQ(first_difference(want.data(), e.data(), n), -1) << n;
    ASSERT_EQ(e[n], 77.0f);
  }
}

int64_t plain_argmax(const std::vector<float>& x) {
  float best = -kInf;
  int64_t at = 0;
  for (size_t i = 0; i < x.size(); i++) {
    if (x[i] > best) best = x[i], at = int64_t(i);
  }
  return at;
}

TEST_P(Ops, argmax_takes_the_lowest_index_and_never_nan) {
  for (int64_t n : sizes()) {
    for (int seed = 0; seed < 20; seed++) {
      TestRandom random(uint64_t(n) * 100 + seed);
      std::vector<float> x(n);
      for (float& v : x)
        v = float(random.below(seed % 2 ? 4 : 1000)) - 2;  // many ties, or few
      for (int i = 0; i < seed % 5; i++)
        x[random.below(int(n))] = i % 2 ? kNan : -kInf;
      if (seed % 7 == 0) x[random.below(int(n))] = kInf;
      ASSERT_EQ(set().rows.argmax(x.data(), n), plain_argmax(x)) << n << " seed " << seed;
    }
  }
  const std::vector<float> nothing(40, -kInf), nans(40, kNan), zeros = {-0.0f, 0.0f, -0.0f};
  EXPECT_EQ(set().rows.argmax(nothing.data(), 40), 0);
  EXPECT_EQ(set().rows.argmax(nans.data(), 40), 0);
  EXPECT_EQ(set().rows.argmax(zeros.data(), 3), 0);
}

TEST_P(Ops, argmax_of_more_than_a_million_elements) {
  std::vector<float> x((1 << 20) + 40, 0.0f);
  x[20] = x[(1 << 20) + 3] = 1;
  EXPECT_EQ(set().rows.argmax(x.data(), int64_t(x.size())), 20);
  x[(1 << 20) + 7] = 2;
  EXPECT_EQ(set().rows.argmax(x.data(), int64_t(x.size())), (1 << 20) + 7);
}

TEST_P(Ops, all_finite_sees_every_element) {
  for (int64_t n : sizes()) {
    auto x = normals(n, n);
    x[0] = 0x1.fffffep127f;
    EXPECT_TRUE(set().rows.all_finite(x.data(), n));
    for (int64_t at : {int64_t(0), n / 2, n - 1}) {
      for (float bad : {kNan, -kNan, kInf, -kInf}) {
        auto y = x;
        y[at] = bad;
        EXPECT_FALSE(set().rows.all_finite(y.data(), n)) << n << " at " << at;
      }
    }
  }
}

TEST_P(Ops, divide_bounds_what_leaves_the_range_and_leaves_infinity_alone) {
  for (int64_t n : sizes()) {
    for (const float divisor : {0.7f, 1e-6f, 3.0f}) {
      auto x = normals(n, n, 100), expected = x, y = x;
      x[0] = expected[0] = -kInf;
      if (n > 20) x[18] = expected[18] = -3e38f, x[19] = expected[19] = 3e38f;
      for (float& v : expected)
        if (v != -kInf) v = std::max(-0x1.fffffep127f, std::min(0x1.fffffep127f, v / divisor));
      set().rows.divide(x.data(), n, divisor, y.data());
      EXPECT_EQ(first_difference(y.data(), expected.data(), n), -1) << n << " by " << divisor;
    }
  }
}

template <class Term>
double lane_sum(const std::vector<float>& x, const Term& term) {
  double lanes[16] = {};
  for (size_t k = 0; k < x.size(); k++)
    lanes[k % 16] = lanes[k % 16] + term(x[k]);
  for (int width : {8, 4, 2, 1})
    for (int l = 0; l < width; l++)
      lanes[l] = lanes[l] + lanes[l + width];
  return lanes[0];
}

TEST_P(Ops, sums_in_double_leave_minus_infinity_out) {
  for (int64_t n : sizes()) {
    auto x = normals(n, n, 20);
    const float max = n % 2 ? 61.0f : 3.0e38f;
    for (int64_t i = 0; i < n; i += 5)
      x[size_t(i)] = -kInf;
    if (n > 40) x[33] = -3.0e38f, x[36] = max, x[37] = 0x1p-149f;
    const double mean = 0.1;
    const double sum = lane_sum(x, [](float v) { return v == -kInf ? 0 : double(v); });
    const double squares =
        lane_sum(x, [&](float v) { return v == -kInf ? 0 : (double(v) - mean) * (double(v) - mean); });
    const double distances = lane_sum(x, [&](float v) {
      const float d = v - max;
      return d == -kInf ? 0 : double(exp_or_zero_f32(d)) * double(d);
    });
    EXPECT_EQ(set().rows.sum(x.data(), n), sum) << n;
    EXPECT_EQ(set().rows.square_sum(x.data(), n, mean), squares) << n;
    const WeightSums of_weights = set().rows.weight_sums(x.data(), n, max);
    EXPECT_EQ(of_weights.distances, distances) << n;
    EXPECT_EQ(of_weights.weights, set().rows.exp_sum(x.data(), n, max, nullptr)) << n;
  }
}

// Nobody who can win is left out, and the list is as short as the bound of the noise allows.
TEST_P(Ops, contenders_are_all_that_may_reach_the_best) {
  constexpr int kN = 3001;
  constexpr float kMax = std::numeric_limits<float>::max();
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const NoiseKey key{seed * 0x123456789u, seed, seed % 3, NoiseDomain(seed % 2)};
    auto x = normals(kN, seed, seed % 3 == 0 ? 0.1f : 5);
    for (int i = 0; i < kN; i += 7)
      x[size_t(i)] = -kInf;
    if (seed % 5 == 0) x[500] = kMax, x[501] = -kMax;
    if (seed % 5 == 1) x[500] = x[501] = x[502] = 0x1p54f;  // where noise is rounded away
    if (seed % 5 == 2) x[500] = 0x1p-149f, x[501] = -0x1p-149f;
    const int begin = int(seed % 4) * 16, end = kN - int(seed);
    int reachable = 0;
    for (const float best :
         {-kMax, -40.0f, -3.0f, 0.0f, 0x1p-149f, 2.5f, 9.0f, 16.0f, 30.0f, 0x1p54f, 3e38f, kMax}) {
      std::vector<int32_t> ids(size_t(end - begin)), expected(ids.size());
      ids.resize(size_t(set().rows.contenders(x.data(), begin, end, key, best, ids.data())));
      expected.resize(
          size_t(specification().rows.contenders(x.data(), begin, end, key, best, expected.data())));
      ASSERT_EQ(ids, expected) << seed << " best " << best;
      size_t next = 0;
      int spare = 0;
      for (int id = begin; id < end; ++id) {
        const bool listed = next < ids.size() && ids[next] == id;
        next += listed;
        const bool wins = double(x[size_t(id)]) + gumbel_of(noise_bits(key, id)) >= double(best);
        ASSERT_TRUE(listed || !wins) << seed << " best " << best << " id " << id;
        ASSERT_FALSE(listed && x[size_t(id)] == -kInf) << id;
        spare += listed && !wins;
        reachable += wins;
      }
      ASSERT_EQ(next, ids.size());
      if (best >= 9) ASSERT_LE(spare, 6 + int(ids.size()) / 2) << seed << " best " << best;
    }
    EXPECT_GT(reachable, 0) << seed;
  }
}

TEST_P(Ops, rope_rotates_the_leading_part_of_every_head) {
  for (int dim : {2, 16, 24, 32, 64, 80, 128}) {
    for (int head_dim : {dim, dim + 8}) {
      const int heads = 3, half = dim / 2;
      std::vector<float> freq(half), cos(half), sin(half);
      for (int i = 0; i < half; i++)
        freq[i] = 1.0f / std::pow(10000.0f, float(2 * i) / float(dim));
      for (bool scaled : {false, true}) {
        set().rope_table(freq.data(), dim, 12345, 1.3f, scaled, cos.data(), sin.data());
        for (int i = 0; i < half; i++) {
          double s, c;
          sincos64(double(12345.0f * freq[i]), &s, &c);
          ASSERT_EQ(cos[i], scaled ? float(c) * 1.3f : float(c));
          ASSERT_EQ(sin[i], scaled ? float(s) * 1.3f : float(s));
          EXPECT_NEAR(s, std::sin(double(12345.0f * freq[i])), 1e-12);
        }
      }
      auto x = normals(heads * head_dim, dim), want = x;
      for (int h = 0; h < heads; h++) {
        for (int i = 0; i < half; i++) {
          float& a = want[h * head_dim + i];
          float& b = want[h * head_dim + half + i];
          const float turned = fma_f32(a, cos[i], -(b * sin[i]));
          b = fma_f32(a, sin[i], b * cos[i]);
          a = turned;
        }
      }
      set().rope(x.data(), heads, head_dim, dim, cos.data(), sin.data());
      ASSERT_EQ(first_difference(want.data(), x.data(), int64_t(x.size())), -1) << dim << " of " << head_dim;

      // Adjacent pairs: the same rotation of elements 2i and 2i + 1.
      const auto place = [&](int i) { return i % half * 2 + i / half; };
      auto halves = normals(heads * head_dim, dim + 1), pairs = halves;
      for (int h = 0; h < heads; h++)
        for (int i = 0; i < dim; i++)
          pairs[h * head_dim + place(i)] = halves[h * head_dim + i];
      set().rope(halves.data(), heads, head_dim, dim, cos.data(), sin.data());
      set().rope_adjacent(pairs.data(), heads, head_dim, dim, cos.data(), sin.data());
      for (int h = 0; h < heads; h++)
        for (int i = 0; i < head_dim; i++)
          ASSERT_EQ(bits_of(pairs[h * head_dim + (i < dim ? place(i) : i)]),
                    bits_of(halves[h * head_dim + i]));
    }
  }
}

// ---- accuracy against double (docs/numerics.md, section 8)

struct Accuracy {
  Unary f;
  double (*exact)(double);
  float low, high;  // magnitude range of the arguments
  bool negative;    // arguments are -[low, high)
  double limit;     // of the measured error
  bool absolute;    // in absolute terms, else in ulp of the result
};

constexpr double kPi = 3.14159265358979323846;
double exact_sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
double exact_silu(double x) {
  return x / (1 + std::exp(-x));
}
double exact_softplus(double x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}
double exact_gelu_tanh(double x) {
  return x / (1 + std::exp(-2 * std::sqrt(2 / kPi) * (x + 0.044715 * x * x * x)));
}
double exact_gelu_erf(double x) {
  return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
}
double exact_exp(double x) {
  return std::exp(x);
}
double exact_tanh(double x) {
  return std::tanh(x);
}
double exact_erf(double x) {
  return std::erf(x);
}

const Accuracy kAccuracy[] = {
    {Unary::kExp, exact_exp, 0, 87, true, 0.866, false},
    {Unary::kExp, exact_exp, 0, 88, false, 0.90, false},
    {Unary::kSigmoid, exact_sigmoid, 0, 87, true, 2.40, false},
    {Unary::kSigmoid, exact_sigmoid, 0, 87, false, 2.40, false},
    {Unary::kSilu, exact_silu, 1e-30f, 87, true, 3.35, false},
    {Unary::kSilu, exact_silu, 1e-30f, 87, false, 3.35, false},
    {Unary::kTanh, exact_tanh, 1e-30f, 100, false, 1.51, false},
    {Unary::kTanh, exact_tanh, 1e-30f, 100, true, 1.51, false},
    {Unary::kSoftplus, exact_softplus, 0, 87, true, 2.9, false},
    {Unary::kSoftplus, exact_softplus, 0, 87, false, 2.9, false},
    {Unary::kGeluTanh, exact_gelu_tanh, 1e-30f, 100, false, 1.83, false},
    {Unary::kGeluTanh, exact_gelu_tanh, 1e-30f, 100, true, 5e-8, true},
    {Unary::kErf, exact_erf, 1e-30f, 100, false, 1.00, false},
    {Unary::kErf, exact_erf, 1e-30f, 100, true, 1.00, false},
    {Unary::kGeluErf, exact_gelu_erf, 1e-30f, 100, false, 1.72, false},
    {Unary::kGeluErf, exact_gelu_erf, 1e-30f, 100, true, 5.3e-8, true},
};

TEST_P(Ops, measured_errors_stay_below_the_documented_ones) {
  constexpr uint32_t kStride = 1499;  // of the bit patterns: about 700,000 arguments per range
  for (const Accuracy& a : kAccuracy) {
    std::vector<float> x, y;
    for (uint64_t u = bits_of(a.low); u < bits_of(a.high); u += kStride) {
      x.push_back(f32_of(uint32_t(u) | (a.negative ? 0x80000000u : 0)));
    }
    y.resize(x.size());
    set().unary[size_t(a.f)](x.data(), int64_t(x.size()), y.data());
    double worst = 0;
    float worst_at = 0;
    for (size_t i = 0; i < x.size(); i++) {
      const double exact = a.exact(double(x[i]));
      double error = std::fabs(double(y[i]) - exact);
      if (!a.absolute) error /= std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
      if (!(error <= worst)) worst = error, worst_at = x[i];
    }
    std::printf("  %-10s %s [%g, %g): %.4g %s at %a\n", unary_name(a.f), a.negative ? "-" : "+",
                double(a.low), double(a.high), worst, a.absolute ? "absolute" : "ulp", double(worst_at));
    EXPECT_LE(worst, a.limit) << unary_name(a.f) << " at " << worst_at;
  }
}

}  // namespace
}  // namespace invar
