#include "cli/benchmark/profile.h"

#include <algorithm>

namespace invar {

void Profile::start() {
  stop();
  phases_.clear();
  steps_ = step_ns_ = tiles_ns_ = 0;
  before_.store(trace_sink(), std::memory_order_relaxed);
  listens_ = true;
  set_trace_sink(this);  // publishes before_
}

void Profile::stop() {
  if (!listens_) return;
  listens_ = false;
  set_trace_sink(before_.load(std::memory_order_relaxed));
}

void Profile::take(const TraceSpan& span) {
  if (TraceSink* const before = before_.load(std::memory_order_relaxed)) before->take(span);
  if (std::this_thread::get_id() != thread_ || !listens_) return;
  const int64_t ns = span.end_ns - span.begin_ns;
  const auto add = [&](const char* name) {
    PhaseTime& phase = phases_[name];
    ++phase.runs;
    phase.ns += ns;
    phase.bytes += span.work.bytes;
    phase.macs += span.work.macs;
    phase.float_macs += span.work.float_macs;
  };
  switch (span.kind) {
    case SpanKind::kStep:
      step_ns_ += ns;
      return;
    case SpanKind::kForward:
      ++steps_;  // not of those that found nothing to do
      return;
    case SpanKind::kSampling:
      return add("(sampling)");
    case SpanKind::kPhase:
      return add(span.name);
    case SpanKind::kTiles:
      tiles_ns_ += ns;
      return;
    case SpanKind::kStepPart:
    case SpanKind::kWait:
    case SpanKind::kSocket:
    case SpanKind::kHandler:
      return;
  }
}

std::vector<PhaseTime> Profile::phases() const {
  std::vector<PhaseTime> sorted;
  int64_t rest_ns = step_ns_;
  for (const auto& [name, phase] : phases_) {
    sorted.push_back(phase);
    sorted.back().name = name;
    rest_ns -= phase.ns;
  }
  sorted.push_back({.name = "(between phases)", .runs = steps_, .ns = rest_ns});
  std::sort(sorted.begin(), sorted.end(), [](const PhaseTime& a, const PhaseTime& b) { return a.ns > b.ns; });
  return sorted;
}

double Profile::bytes_per_step() const {
  double bytes = 0;
  for (const auto& [name, phase] : phases_)
    bytes += phase.bytes;
  return steps_ == 0 ? 0 : bytes / double(steps_);
}

double Profile::outside_share() const {
  return step_ns_ == 0 ? 0 : 1 - double(tiles_ns_) / double(step_ns_);
}

}  // namespace invar
