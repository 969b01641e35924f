#pragma once
// How long a piece of work takes, in seconds: one run to warm up, then `runs` that count.

#include <algorithm>
#include <vector>

#include "base/clock.h"

namespace invar {

struct Timing {
  double median, best;
};

template <class Run>
Timing time_runs(int runs, const Run& run) {
  std::vector<double> seconds;
  run();
  for (int i = 0; i < runs; ++i) {
    const double start = now_s();
    run();
    seconds.push_back(now_s() - start);
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds[0]};
}

}  // namespace invar
