#include "engine/wait_estimate.h"

#include <algorithm>

namespace invar {

namespace {
constexpr double kNews = 0.1;  // what the latest one counts in the mean
}

void WaitEstimate::ended(int64_t service_ns) {
  const double ns = double(service_ns);
  mean_service_ns_ = mean_service_ns_ == 0 ? ns : mean_service_ns_ + kNews * (ns - mean_service_ns_);
}

void WaitEstimate::update(int32_t places, int64_t mean_age_ns) {
  places_.store(places, std::memory_order_relaxed);
  ns_per_place_.store(int64_t(std::max(mean_service_ns_, double(mean_age_ns)) / places),
                      std::memory_order_relaxed);
}

int64_t WaitEstimate::predict_ns(int64_t live) const {
  const int64_t ahead = live + 1 - places_.load(std::memory_order_relaxed);
  return std::max<int64_t>(ahead, 0) * ns_per_place_.load(std::memory_order_relaxed);
}

}  // namespace invar
