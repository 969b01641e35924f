#pragma once
// WaitEstimate: how long a request that comes now would wait until it is first scheduled: those that wait
// before it, times how long a running one holds its place, over how many run. Written on the engine thread,
// read on any.

#include <atomic>
#include <cstdint>

namespace invar {

class WaitEstimate {
 public:
  void ended(int64_t service_ns);  // a request that ran so long
  // running: sequences in steps, which have run for mean_age_ns on average. A server that has just begun
  // knows of nothing that ended, and what runs longer than all before tells more than they do.
  void running(int32_t running, int64_t mean_age_ns);
  // For one behind `waiting` others.
  int64_t predict_ns(int64_t waiting) const;

 private:
  double mean_service_ns_ = 0;
  std::atomic<int64_t> ns_per_place_{0};  // between two places that become free
};

}  // namespace invar
