#pragma once
// Histogram: how many observations lie below each of some upper bounds. observe() on one thread at a time
// (the engine's), snapshot() on any; neither locks nor, for observe(), allocates.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/stats.h"

namespace invar {

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

  // Counts in the first bucket whose bound is not below the value, else in the one above all bounds.
  void observe(double value) {
    const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
    add(counts_[size_t(bound - bounds_.begin())], int64_t{1});
    add(sum_, value);
  }

  HistogramStats snapshot() const {
    HistogramStats s;
    s.bounds = bounds_;
    for (const auto& count : counts_)
      s.counts.push_back(count.load(std::memory_order_relaxed));
    s.sum = sum_.load(std::memory_order_relaxed);
    return s;
  }

 private:
  // There is one writer, so that an atomic exchange of the sum is not needed.
  template <class T>
  static void add(std::atomic<T>& to, T value) {
    to.store(to.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
  }

  std::vector<double> bounds_;                // ascending
  std::vector<std::atomic<int64_t>> counts_;  // [bounds + 1]
  std::atomic<double> sum_{0};
};

}  // namespace invar
