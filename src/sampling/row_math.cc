#include "sampling/row_math.h"

#include <array>

namespace invar {

extern const RowMath kRowMathPortable, kRowMathFma;

namespace {

bool cpu_has_fma() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return true;  // part of the baseline of every other supported CPU
#endif
}

}  // namespace

std::span<const RowMath* const> all_row_math() {
  static const std::array<const RowMath*, 2> tables = {&kRowMathPortable, &kRowMathFma};
  return std::span(tables).first(cpu_has_fma() ? 2 : 1);
}

const RowMath& row_math() {
  return *all_row_math().back();
}

}  // namespace invar
