#pragma once
// Trace: spans of time, for those who ask where it goes: steps, their phases, waits for other threads,
// sockets. One sink per process takes them all; without one, a span costs a load and a branch.

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace invar {

enum class SpanKind : uint8_t {
  kStep,      // a step of the engine, whole
  kForward,   // the model's part of a step
  kSampling,  // of a step
  kStepPart,  // any other
  kPhase,     // of the executor, within kForward
  kTiles,     // what one thread did of a phase
  kWait,      // a thread that ran out of tiles, until the phase ended
  kSocket,    // reads and writes of a connection
  kHandler,   // a request on its worker
};

struct SpanWork {
  int64_t rows = 0;
  double bytes = 0;  // that have to be read: weights, keys and values
  double macs = 0;   // multiply-adds of integers
  double float_macs = 0;
};

struct TraceSpan {
  const char* name;  // valid during take()
  SpanKind kind;
  int64_t begin_ns = 0, end_ns = 0;  // now_ns()
  SpanWork work{};                   // kPhase
};

class TraceSink {
 public:
  virtual ~TraceSink() = default;
  virtual void take(const TraceSpan& span) = 0;  // from any thread, at the span's end
};

namespace trace_detail {
inline std::atomic<TraceSink*> sink{nullptr};
}

// nullptr: none. Spans that have begun by then still go to the old one, which lives until no thread is within
// one.
inline void set_trace_sink(TraceSink* sink) {
  trace_detail::sink.store(sink, std::memory_order_release);
}
inline TraceSink* trace_sink() {
  return trace_detail::sink.load(std::memory_order_acquire);
}

// A span from here to the end of the block.
class Traced {
 public:
  Traced(const char* name, SpanKind kind) : sink_(trace_sink()), span_{name, kind} {
    if (sink_ != nullptr) span_.begin_ns = now_ns();
  }
  ~Traced() {
    if (sink_ == nullptr) return;
    span_.end_ns = now_ns();
    sink_->take(span_);
  }
  Traced(const Traced&) = delete;
  Traced& operator=(const Traced&) = delete;

  bool on() const { return sink_ != nullptr; }
  void set_work(const SpanWork& work) { span_.work = work; }

 private:
  TraceSink* const sink_;
  TraceSpan span_;
};

}  // namespace invar
