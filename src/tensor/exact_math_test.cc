#include "tensor/exact_math.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/testing/reduced.h"
#include "tensor/exact_math_test.h"

INVAR_DEFINE_EXACT_FUNCTIONS(portable);

namespace invar {
namespace {

using testing::ExactFunctions;

// INVAR_TEST_EXHAUSTIVE=1 visits every float and many more FMA inputs (minutes instead of seconds).
bool exhaustive() {
  const char* value = std::getenv("INVAR_TEST_EXHAUSTIVE");
  return value != nullptr && std::string(value) != "0";
}

// Reduced: a tenth of the random inputs.
size_t sample(size_t normal, size_t all) {
  return exhaustive() ? all : reduced_tests() ? normal / 10 : normal;
}

struct Random {  // splitmix64
  uint64_t state;
  uint64_t next() {
    uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  int below(int n) { return int(next() % uint64_t(n)); }
};

// The reference for a single rounding: the instruction where there is one, else the C library's exact fma.
void reference_fma(const float* a, const float* b, const float* c, float* out, size_t n) {
  if (const ExactFunctions* hw = testing::hardware_functions()) return hw->fma_f32(a, b, c, out, n);
  for (size_t i = 0; i < n; ++i)
    out[i] = std::fma(a[i], b[i], c[i]);
}
void reference_fma(const double* a, const double* b, const double* c, double* out, size_t n) {
  if (const ExactFunctions* hw = testing::hardware_functions()) return hw->fma_f64(a, b, c, out, n);
  for (size_t i = 0; i < n; ++i)
    out[i] = std::fma(a[i], b[i], c[i]);
}

template <class Float, class Make>
void expect_equal_to_reference(size_t count, Make make) {
  constexpr size_t kBatch = 4096;
  std::vector<Float> a(kBatch), b(kBatch), c(kBatch), want(kBatch), got(kBatch);
  for (size_t done = 0; done < count; done += kBatch) {
    for (size_t i = 0; i < kBatch; ++i)
      make(a[i], b[i], c[i]);
    reference_fma(a.data(), b.data(), c.data(), want.data(), kBatch);
    for (size_t i = 0; i < kBatch; ++i) {
      if constexpr (sizeof(Float) == 4) {
        got[i] = soft_fma_f32(a[i], b[i], c[i]);
      } else {
        got[i] = soft_fma_f64(a[i], b[i], c[i]);
      }
    }
    if (std::memcmp(want.data(), got.data(), kBatch * sizeof(Float)) == 0) continue;
    for (size_t i = 0; i < kBatch; ++i) {  // NaN payloads may differ
      if (std::isnan(want[i]) && std::isnan(got[i])) continue;
      ASSERT_EQ(bits_of(want[i]), bits_of(got[i])) << std::hexfloat << a[i] << " * " << b[i] << " + " << c[i];
    }
  }
}

TEST(ExactMath, SoftFma32EqualsHardwareOnAllBitPatterns) {
  Random random{1};
  expect_equal_to_reference<float>(sample(40'000'000, 4'000'000'000), [&](float& a, float& b, float& c) {
    const uint64_t r = random.next();
    a = f32_of(uint32_t(r)), b = f32_of(uint32_t(r >> 32)), c = f32_of(uint32_t(random.next()));
  });
}

TEST(ExactMath, SoftFma32EqualsHardwareOnCancellationTiesAndSubnormals) {
  Random random{2};
  expect_equal_to_reference<float>(sample(60'000'000, 4'000'000'000), [&](float& a, float& b, float& c) {
    const uint64_t r = random.next();
    const auto value = [](uint32_t mantissa, int exponent) {
      return f32_of((mantissa & 0x807FFFFFu) | uint32_t(exponent + 127) << 23);
    };
    // Few mantissa bits make exact products and ties; the exponent of a*b runs from subnormal results to
    // overflow.
    const uint32_t mask = (r >> 62) == 0 ? 0x80000000u | (0x7FF800u << (r >> 58 & 3)) : 0xFFFFFFFFu;
    const int total = int((r >> 48) % 290) - 160, half = total / 2;
    a = value(uint32_t(r) & mask, std::max(-126, std::min(127, half)));
    b = value(uint32_t(r >> 24) & mask, std::max(-126, std::min(127, total - half)));
    const float product = a * b;
    switch (random.next() & 7) {
      case 0:
        c = -product;
        break;  // exact residue
      case 1:
        c = f32_of(bits_of(-product) + uint32_t(random.below(9)) - 4);
        break;  // near cancellation
      case 2:
        c = f32_of(bits_of(-product) ^ uint32_t(1u << random.below(24)));
        break;
      case 3:
        c = f32_of(uint32_t(random.next()) & 0x80000003u);
        break;  // smallest subnormals, zeros
      case 4:
        c = product * f32_of(uint32_t(127 + 22 + random.below(5)) << 23);
        break;  // product is near half an ulp of c
      case 5:
        c = product * f32_of(uint32_t(127 - 27 + random.below(6)) << 23);
        break;  // c is near half an ulp of the product
      case 6:
        c = value(uint32_t(random.next()) & mask,
                  std::max(-126, std::min(127, total + random.below(60) - 30)));
        break;
      default:
        c = f32_of(uint32_t(random.next()) & 0x80FFFFFFu);
        break;  // subnormal and small
    }
  });
}

TEST(ExactMath, SoftFma64EqualsHardwareInsideItsDocumentedRange) {
  Random random{3};
  expect_equal_to_reference<double>(sample(50'000'000, 4'000'000'000), [&](double& a, double& b, double& c) {
    const uint64_t r = random.next();
    const auto value = [](uint64_t mantissa, int exponent) {
      return f64_of((mantissa & 0x800FFFFFFFFFFFFFu) | uint64_t(exponent + 1023) << 52);
    };
    const uint64_t mask =
        (r >> 62) == 0 ? 0xFFFFFFFFFC000000u << (r >> 58 & 3) | 0x8000000000000000u : ~uint64_t{0};
    const int ea = int(r % 950) - 475, eb = int((r >> 20) % 950) - 475;
    a = value(random.next() & mask, ea), b = value(random.next() & mask, eb);
    const double product = a * b;
    const uint64_t sign = random.next() & 0x8000000000000000u;
    const auto scaled = [&](int by) {
      return value(bits_of(product) ^ sign, std::max(-1000, std::min(1000, ea + eb + by)));
    };
    switch (random.next() & 7) {
      case 0:
        c = -product;
        break;
      case 1:
        c = f64_of(bits_of(-product) + uint64_t(random.below(9)) - 4);
        break;
      case 2:
        c = f64_of(bits_of(-product) ^ (uint64_t{1} << random.below(53)));
        break;
      case 3:
        c = scaled(50 + random.below(6));
        break;
      case 4:
        c = scaled(-56 + random.below(8));
        break;
      case 5:
        c = scaled(100 + random.below(10));
        break;
      case 6:
        c = value(random.next() & mask, std::max(-1000, std::min(1000, ea + eb + random.below(260) - 130)));
        break;
      default:
        c = scaled(-104 - random.below(60));  // decides a tie of the product
        break;
    }
  });
}

TEST(ExactMath, SoftFma64KeepsTheSignOfZeroAndInfinities) {
  const double values[] = {0.0, -0.0, 1.0, -1.0, 1.5, 0x1p-300, -0x1p300, HUGE_VAL, -HUGE_VAL};
  for (const double a : values) {
    for (const double b : values) {
      for (const double c : values) {
        const double want = std::fma(a, b, c), got = soft_fma_f64(a, b, c);
        if (std::isnan(want)) {
          EXPECT_TRUE(std::isnan(got)) << a << " " << b << " " << c;
        } else {
          EXPECT_EQ(bits_of(want), bits_of(got)) << a << " " << b << " " << c;
        }
      }
    }
  }
}

// ---- measured errors, against the C library in a wider type

struct Error {
  double ulp = 0, absolute = 0;
  double at = 0;
};

double ulp_of(double x) {  // of a float near x
  int exponent;
  std::frexp(x, &exponent);
  return std::ldexp(1.0, std::max(exponent, -125) - 24);
}

// Every `stride`-th float of [low, high]; where the true value is subnormal only the absolute error counts.
Error measure(float (*function)(float), double (*truth)(double), float low, float high) {
  const uint32_t stride = uint32_t(exhaustive() ? 1 : 1511);
  Error worst;
  const auto visit = [&](float x) {
    if (!(x >= low && x <= high)) return;
    const double t = truth(double(x)), difference = std::fabs(double(function(x)) - t);
    if (!(difference <= worst.absolute)) worst.absolute = difference;
    if (std::fabs(t) < FLT_MIN) return;
    if (!(difference / ulp_of(t) <= worst.ulp)) worst.ulp = difference / ulp_of(t), worst.at = double(x);
  };
  for (uint64_t u = 0x00800000; u < 0x43000000; u += stride) {
    visit(f32_of(uint32_t(u)));
    visit(f32_of(uint32_t(u) | 0x80000000u));
  }
  visit(low);
  visit(high);
  return worst;
}

void expect_ulp(const char* name, float (*function)(float), double (*truth)(double), float low, float high,
                double limit) {
  const Error e = measure(function, truth, low, high);
  std::printf("  %-10s [%g, %g]: %.4f ulp at %a, table says %.3f\n", name, double(low), double(high), e.ulp,
              e.at, limit);
  EXPECT_LE(e.ulp, limit) << name << " at " << std::hexfloat << e.at;
  EXPECT_GT(e.ulp, 0.4) << name << ": the sample saw nothing";
}

void expect_absolute(const char* name, float (*function)(float), double (*truth)(double), float low,
                     float high, double limit) {
  const Error e = measure(function, truth, low, high);
  std::printf("  %-10s [%g, %g]: %.3g absolute, table says %.3g\n", name, double(low), double(high),
              e.absolute, limit);
  EXPECT_LE(e.absolute, limit) << name;
}

double true_gelu_tanh(double x) {
  const double u = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-2 * u));
}
double true_gelu_erf(double x) {
  return 0.5 * x * std::erfc(-x * 0.70710678118654752440);
}

TEST(ExactMath, FloatFunctionsKeepTheErrorsOfTheTable) {
  expect_ulp("exp", exp_f32, [](double x) { return std::exp(x); }, -87, -FLT_MIN, 0.866);
  expect_ulp("exp", exp_f32, [](double x) { return std::exp(x); }, 0, 88, 0.88);
  expect_ulp("sigmoid", sigmoid_f32, [](double x) { return 1 / (1 + std::exp(-x)); }, -87, 100, 2.40);
  expect_ulp("silu", silu_f32, [](double x) { return x / (1 + std::exp(-x)); }, -87, 87, 3.35);
  expect_ulp("tanh", tanh_f32, [](double x) { return std::tanh(x); }, -120, 120, 1.51);
  expect_ulp("log1p", log1p_f32, [](double x) { return std::log1p(x); }, 0, 1, 1.96);
  expect_ulp(
      "softplus", softplus_f32,
      [](double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }, -87, 120, 2.9);
  expect_ulp("gelu tanh", gelu_tanh_f32, true_gelu_tanh, 0, 120, 1.83);
  expect_absolute("gelu tanh", gelu_tanh_f32, true_gelu_tanh, -120, 0, 5e-8);
  expect_ulp("erf", erf_f32, [](double x) { return std::erf(x); }, -120, 120, 1.00);
  expect_ulp("gelu erf", gelu_erf_f32, true_gelu_erf, 0, 120, 1.72);
  expect_absolute("gelu erf", gelu_erf_f32, true_gelu_erf, -120, 0, 5.3e-8);
}

TEST(ExactMath, EndsOfTheFloatFunctionsAreExact) {
  EXPECT_EQ(bits_of(exp_f32(0.0f)), bits_of(1.0f));
  EXPECT_EQ(bits_of(exp_f32(-0.0f)), bits_of(1.0f));
  EXPECT_EQ(bits_of(exp_f32(-87.0001f)), 0u);
  EXPECT_EQ(exp_f32(88.001f), std::numeric_limits<float>::infinity());
  EXPECT_EQ(bits_of(exp_f32(-std::numeric_limits<float>::infinity())), 0u);
  EXPECT_EQ(bits_of(exp_or_zero_f32(-50.0001f)), 0u);
  EXPECT_GT(exp_or_zero_f32(-50.0f), 0.0f);
  EXPECT_EQ(bits_of(silu_f32(-100.0f)), 0x80000000u);
  EXPECT_EQ(tanh_f32(1e30f), 1.0f);
  EXPECT_EQ(tanh_f32(-1e30f), -1.0f);
  for (float t = kErfSmall; t < 1e30f; t *= 1.001f)
    ASSERT_LE(erf_f32(t), 1.0f) << t;  // no wild polynomial far out
  EXPECT_EQ(erf_f32(1e30f), 1.0f);
  EXPECT_EQ(gelu_erf_f32(-1e10f), 0.0f);
}

double ulp64(long double x) {
  int exponent;
  std::frexp(x, &exponent);
  return double(std::ldexp(1.0L, exponent - 53));
}

TEST(ExactMath, Log64IsBelowOneUlp) {
  Random random{4};
  double worst = 0, at = 0;
  const int n = int(sample(1'500'000, 500'000'000));
  for (int i = 0; i < n; ++i) {
    const uint64_t r = random.next();
    double x;
    switch (i & 3) {
      case 0:
        x = f64_of(0x3FE6000000000000u + (r & 0x001FFFFFFFFFFFFFu) / 2);
        break;  // around 1
      case 1:
        x = (double(r >> 12) + 0.5) * 0x1p-52;
        break;  // the sampler's uniforms
      case 2:
        x = 1.0 - double(r & 0xFFFFFF) * 0x1p-53;
        break;  // just below 1
      default:
        x = f64_of((r >> 1) % 0x7FE0000000000000u + 0x0010000000000000u);
        break;
    }
    const long double t = std::log(static_cast<long double>(x));
    const double error =
        t == 0 ? std::fabs(log64(x)) : double(std::fabs(static_cast<long double>(log64(x)) - t)) / ulp64(t);
    if (!(error <= worst)) worst = error, at = x;
  }
  std::printf("  log64: %.4f ulp at %a, table says 0.86\n", worst, at);
  EXPECT_LE(worst, 0.86) << std::hexfloat << at;
  EXPECT_EQ(log64(1.0), 0.0);
}

TEST(ExactMath, Exp64IsBelowOneUlp) {
  Random random{5};
  double worst = 0, at = 0;
  const int n = int(sample(1'500'000, 500'000'000));
  for (int i = 0; i < n; ++i) {
    const double unit = double(int64_t(random.next()) >> 11) * 0x1p-52;  // (-1, 1)
    const double x = (i & 1) ? unit * 40 : unit * 700;
    const long double t = std::exp(static_cast<long double>(x));
    const double error = double(std::fabs(static_cast<long double>(exp64(x)) - t)) / ulp64(t);
    if (!(error <= worst)) worst = error, at = x;
  }
  std::printf("  exp64: %.4f ulp at %a\n", worst, at);
  EXPECT_LT(worst, kExp64MaxUlp) << std::hexfloat << at;
  EXPECT_EQ(exp64(0.0), 1.0);
}

TEST(ExactMath, SinAndCosRoundToFloatWithinTheTable) {
  Random random{6};
  double worst = 0, at = 0;
  const int n = int(sample(1'500'000, 500'000'000));
  for (int i = 0; i < n; ++i) {
    // Floats over all magnitudes up to 2^24: angles of rope.
    const float x = f32_of(uint32_t(random.next() % 0x4B800000u));
    double s, c;
    sincos64(double(x), &s, &c);
    const long double ts = std::sin(static_cast<long double>(x)), tc = std::cos(static_cast<long double>(x));
    for (const auto& [got, truth] : {std::pair{float(s), ts}, std::pair{float(c), tc}}) {
      if (std::fabs(truth) < FLT_MIN) continue;
      const double error = std::fabs(double(got - truth)) / ulp_of(double(truth));
      if (!(error <= worst)) worst = error, at = double(x);
    }
  }
  std::printf("  sincos64: %.5f ulp of float at %a, table says 0.5001\n", worst, at);
  EXPECT_LE(worst, 0.5001) << std::hexfloat << at;
}

TEST(ExactMath, PortableAndHardwareFormsGiveTheSameBits) {
  const ExactFunctions* hw = testing::hardware_functions();
  if (hw == nullptr) GTEST_SKIP() << "NOT RUN: this CPU has no FMA";
  Random random{7};
  for (int i = 0; i < 500'000; ++i) {
    const uint64_t r = random.next();
    const float x = f32_of(uint32_t(r) % 0x43000000u | (uint32_t(r >> 32) & 0x80000000u));
    const float e = f32_of(uint32_t(r) % 0x3F800001u);
    for (const auto function : {&ExactFunctions::exp, &ExactFunctions::sigmoid, &ExactFunctions::silu,
                                &ExactFunctions::tanh, &ExactFunctions::softplus, &ExactFunctions::gelu_tanh,
                                &ExactFunctions::erf, &ExactFunctions::gelu_erf}) {
      ASSERT_EQ(bits_of((portable.*function)(x)), bits_of((hw->*function)(x))) << std::hexfloat << x;
    }
    ASSERT_EQ(bits_of(portable.log1p(e)), bits_of(hw->log1p(e))) << std::hexfloat << e;
    const double u = (double(random.next() >> 12) + 0.5) * 0x1p-52;
    ASSERT_EQ(bits_of(portable.log64(u)), bits_of(hw->log64(u))) << std::hexfloat << u;
    const double g = -portable.log64(u);
    ASSERT_EQ(bits_of(portable.log64(g)), bits_of(hw->log64(g))) << std::hexfloat << g;
    const double y = (u - 0.5) * 80;
    ASSERT_EQ(bits_of(portable.exp64(y)), bits_of(hw->exp64(y))) << std::hexfloat << y;
    double s1, c1, s2, c2;
    const double angle = double(f32_of(uint32_t(r >> 20) % 0x4B800000u));
    portable.sincos64(angle, &s1, &c1);
    hw->sincos64(angle, &s2, &c2);
    ASSERT_EQ(bits_of(s1), bits_of(s2)) << std::hexfloat << angle;
    ASSERT_EQ(bits_of(c1), bits_of(c2)) << std::hexfloat << angle;
  }
}

}  // namespace
}  // namespace invar
