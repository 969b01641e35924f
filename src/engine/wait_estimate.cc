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

void WaitEstimate::running(int32_t running, int64_t mean_age_ns) {
  const double service = std::max(mean_service_ns_, double(mean_age_ns));
  ns_per_place_.store(running == 0 ? 0 : int64_t(service / running), std::memory_order_relaxed);
}

int64_t WaitEstimate::predict_ns(int64_t waiting) const {
  return waiting * ns_per_place_.load(std::memory_order_relaxed);
}

}  // namespace invar
