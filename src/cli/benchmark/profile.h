#pragma once
// Profile: where the time of an engine's steps goes, by phase, from the spans of a trace. It listens between
// start() and stop(), on the thread that steps, and hands spans on to the sink of before. It outlives the
// engine: a worker may bring the end of a span after stop().

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/trace.h"

namespace invar {

struct PhaseTime {
  std::string name;
  int64_t runs = 0;
  int64_t ns = 0;
  double bytes = 0, macs = 0, float_macs = 0;  // SpanWork's
};

class Profile final : public TraceSink {
 public:
  ~Profile() override { stop(); }
  void start();  // anew
  void stop();
  void take(const TraceSpan& span) override;

  int64_t steps() const { return steps_; }
  int64_t step_ns() const { return step_ns_; }
  // The longest first; "(sampling)" and "(between phases)" among them. Their times add up to step_ns.
  std::vector<PhaseTime> phases() const;
  double bytes_per_step() const;
  // Of the steps' time: when the stepping thread did not work on tiles, but planned, sampled, published or
  // waited for others.
  double outside_share() const;

 private:
  const std::thread::id thread_ = std::this_thread::get_id();
  bool listens_ = false;  // like all below, of that thread alone
  std::atomic<TraceSink*> before_{nullptr};
  std::map<std::string, PhaseTime> phases_;
  int64_t steps_ = 0, step_ns_ = 0, tiles_ns_ = 0;
};

}  // namespace invar
