#pragma once
// WaitEstimate: how long a request that comes now would wait until it is first scheduled: those that it finds
// waiting, times how long a running one holds its place, over the places. Written on the engine thread, read
// on any.

#include <atomic>
#include <cstdint>

namespace invar {

class WaitEstimate {
 public:
  void ended(int64_t service_ns);  // a request that ran so long
  // places: sequences that can run at once. Those that do have run for mean_age_ns on average: a server that
  // has just begun knows of nothing that ended, and what runs longer than all before tells more than they do.
  void update(int32_t places, int64_t mean_age_ns);
  // For one that comes when `live` others run or wait.
  int64_t predict_ns(int64_t live) const;

 private:
  double mean_service_ns_ = 0;
  std::atomic<int32_t> places_{1};
  std::atomic<int64_t> ns_per_place_{0};  // between two places that become free
};

}  // namespace invar
