#pragma once
// FpEnvironment: while it lives, the calling thread computes as the numeric contract demands (rounding to
// nearest even, no flush to zero, no traps); the previous state comes back at the end of the scope. No-op
// cost: two moves.

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace invar {

class FpEnvironment {
 public:
  FpEnvironment() : saved_(read()) { write(kContract); }
  ~FpEnvironment() { write(saved_); }
  FpEnvironment(const FpEnvironment&) = delete;
  FpEnvironment& operator=(const FpEnvironment&) = delete;

#if defined(__x86_64__)
  static constexpr uint64_t kContract = 0x1F80;  // MXCSR
  static uint64_t read() { return _mm_getcsr(); }
  static void write(uint64_t value) { _mm_setcsr(static_cast<unsigned>(value)); }
#elif defined(__aarch64__)
  static constexpr uint64_t kContract = 0;  // FPCR
  static uint64_t read() {
    uint64_t value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void write(uint64_t value) { asm volatile("msr fpcr, %0" ::"r"(value)); }
#else
#error "set the floating-point control word of this architecture here"
#endif

 private:
  uint64_t saved_;
};

}  // namespace invar
