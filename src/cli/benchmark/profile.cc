#include "cli/benchmark/profile.h"

#include <algorithm>
#include <string_view>

namespace invar {

void Profile::take(const TraceSpan& span) {
  if (before_ != nullptr) before_->take(span);
  if (std::this_thread::get_id() != thread_) return;
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
    case SpanKind::kPhase:
      return add(span.name);
    case SpanKind::kStep:
      if (std::string_view(span.name) == "sample") return add("(sampling)");
      if (std::string_view(span.name) == "forward") ++steps_;  // not of those that found nothing to do
      if (std::string_view(span.name) == "step") step_ns_ += ns;
      return;
    case SpanKind::kTiles:
      tiles_ns_ += ns;
      return;
    case SpanKind::kWait:
    case SpanKind::kSocket:
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
