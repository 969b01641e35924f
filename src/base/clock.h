#pragma once
// The monotonic clock. For durations only: nothing that decides a token reads it.

#include <chrono>
#include <cstdint>

namespace invar {

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline double now_s() {
  return double(now_ns()) * 1e-9;
}

// A source of now_ns() that a simulation can replace. Read from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_ns() const = 0;
};

inline const Clock& machine_clock() {
  class Machine final : public Clock {
    int64_t now_ns() const override { return invar::now_ns(); }
  };
  static const Machine clock;
  return clock;
}

}  // namespace invar
