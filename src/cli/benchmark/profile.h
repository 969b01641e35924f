#pragma once
// Profile: where the time of an engine's steps goes, by phase, from the spans of a trace. A sink while it
// lives, which hands on to the one before; steps run on the thread that made it.

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
  Profile() { set_trace_sink(this); }
  ~Profile() override { set_trace_sink(before_); }
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
  TraceSink* const before_ = trace_sink();
  const std::thread::id thread_ = std::this_thread::get_id();
  std::map<std::string, PhaseTime> phases_;
  int64_t steps_ = 0, step_ns_ = 0, tiles_ns_ = 0;
};

}  // namespace invar
