#pragma once
// The functions of exact_math.h as a table, once in the portable form and once compiled with hardware FMA.

#include <cstddef>
#include <cstdint>

namespace invar::testing {

struct ExactFunctions {
  void (*fma_f32)(const float* a, const float* b, const float* c, float* out, size_t n);
  void (*fma_f64)(const double* a, const double* b, const double* c, double* out, size_t n);
  float (*exp)(float);
  float (*sigmoid)(float);
  float (*silu)(float);
  float (*tanh)(float);
  float (*log1p)(float);
  float (*softplus)(float);
  float (*gelu_tanh)(float);
  float (*erf)(float);
  float (*gelu_erf)(float);
  double (*log64)(double);
  double (*exp64)(double);
  void (*sincos64)(double, double*, double*);
};

// Null when the CPU or the compiler's target has no FMA.
const ExactFunctions* hardware_functions();

}  // namespace invar::testing

// Defines `name`, a static ExactFunctions of the including file's compilation.
#define INVAR_DEFINE_EXACT_FUNCTIONS(name)                                                               \
  static void name##_fma_f32(const float* a, const float* b, const float* c, float* out, size_t n) {     \
    for (size_t i = 0; i < n; ++i)                                                                       \
      out[i] = invar::fma_f32(a[i], b[i], c[i]);                                                         \
  }                                                                                                      \
  static void name##_fma_f64(const double* a, const double* b, const double* c, double* out, size_t n) { \
    for (size_t i = 0; i < n; ++i)                                                                       \
      out[i] = invar::fma_f64(a[i], b[i], c[i]);                                                         \
  }                                                                                                      \
  static const invar::testing::ExactFunctions name = {                                                   \
      name##_fma_f32,      name##_fma_f64,   invar::exp_f32,      invar::sigmoid_f32,   invar::silu_f32, \
      invar::tanh_f32,     invar::log1p_f32, invar::softplus_f32, invar::gelu_tanh_f32, invar::erf_f32,  \
      invar::gelu_erf_f32, invar::log64,     invar::exp64,        invar::sincos64}
