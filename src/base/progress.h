#pragma once
// Progress: one line for long work (download, packing, benchmarks). On a terminal the line is redrawn at most
// ten times a second; elsewhere a plain line is printed at the start, every few seconds, and at the end.
// Writes to stderr. What would steer a terminal in the label is escaped. Thread-safe: advance() may be called
// by several workers.

#include <atomic>
#include <cstdint>
#include <string>

namespace invar {

class Progress {
 public:
  enum class Unit { kBytes, kItems };

  Progress(const std::string& label, int64_t total, Unit unit = Unit::kBytes);
  ~Progress();  // prints the closing line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(int64_t amount);

 private:
  void draw(bool last);

  std::string label_;
  int64_t total_;
  Unit unit_;
  bool terminal_;
  int64_t start_ns_;
  std::atomic<int64_t> done_{0};
  std::atomic<int64_t> next_draw_ns_{0};
};

}  // namespace invar
