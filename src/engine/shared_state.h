#pragma once
// SharedState: what the engine thread and the threads of callers have in common, and all of it. Callers put
// requests in, cancel them and read figures; the engine thread takes requests out and counts.

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/inbox.h"
#include "engine/request.h"
#include "engine/request_metrics.h"
#include "engine/stream.h"
#include "engine/wait_estimate.h"

namespace invar {

// The choices of one request: the first computes the prompt, the others are its forks.
struct Arrival {
  struct Choice {
    GenerateRequest request;
    std::shared_ptr<Stream> stream;
  };
  std::vector<Choice> choices;
  int64_t submitted_ns;
};

struct SharedState {
  explicit SharedState(int32_t context) : metrics(context) {}

  // Answers that run or wait. What ended is read first, so that nothing which ends meanwhile is missed among
  // the submitted ones.
  int64_t live() const {
    const int64_t ended = metrics.requests_ended();
    return submitted - ended;
  }
  // Of a request that comes when so many run or wait.
  double predicted_wait_s(int64_t live) const { return double(wait.predict_ns(live)) * 1e-9; }

  Inbox<Arrival> inbox;
  // Raised by streams that are cancelled; they may outlive the engine.
  const std::shared_ptr<std::atomic<bool>> cancels = std::make_shared<std::atomic<bool>>(false);

  std::atomic<int64_t> submitted{0};  // answers

  // Counted by the engine thread; see EngineStats.
  RequestMetrics metrics;
  WaitEstimate wait;
  std::atomic<int64_t> steps{0}, prompt_tokens{0}, recomputed_tokens{0}, preemptions{0}, pages_used{0},
      pages_idle{0}, prefix_evictions{0};
  std::atomic<int32_t> running{0};
};

}  // namespace invar
