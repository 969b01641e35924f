// Compiled with -mfma (folder.cmake). Nothing but plain functions here: an inline function of a library
// header would be shared with the files of the baseline set.
#include "tensor/exact_math.h"
#include "tensor/exact_math_test.h"

INVAR_DEFINE_EXACT_FUNCTIONS(hardware);

namespace invar::testing {

const ExactFunctions* hardware_functions() {
#if !INVAR_HARDWARE_FMA
  return nullptr;
#elif defined(__x86_64__)
  return __builtin_cpu_supports("fma") ? &hardware : nullptr;
#else
  return &hardware;
#endif
}

}  // namespace invar::testing
