#pragma once
// RequestMetrics: what happened to requests, for EngineStats. Written on the engine thread, snapshot() on
// any. Buckets are those of vLLM's metrics of the same meaning, so that its dashboards fit.

#include <atomic>
#include <cstdint>

#include "engine/histogram.h"
#include "engine/stats.h"
#include "engine/stream.h"

namespace invar {

// Moments of one request: now_ns(), 0 = not yet.
struct RequestTimes {
  int64_t submitted = 0;
  int64_t scheduled = 0;    // a step computed the first of its prompt
  int64_t first_token = 0;  // handed to the stream
  int64_t last_token = 0;
};

class RequestMetrics {
 public:
  // context: positions of prompt and answer; the buckets of token counts end there.
  explicit RequestMetrics(int32_t context);

  void step(int32_t tokens) { step_tokens_.observe(tokens); }
  void published(RequestTimes& times, int32_t tokens, int64_t now);
  void ended(const RequestTimes& times, FinishReason reason, int32_t prompt, int32_t generated, int64_t now);

  int64_t generated_tokens() const { return generated_total_.load(std::memory_order_relaxed); }
  int64_t requests_ended() const { return ended_total_.load(std::memory_order_relaxed); }
  HistogramStats step_tokens() const { return step_tokens_.snapshot(); }
  RequestStats snapshot() const;

 private:
  std::atomic<int64_t> generated_total_{0}, ended_total_{0};
  std::atomic<int64_t> stopped_{0}, reached_length_{0}, cancelled_{0}, failed_{0};
  Histogram queue_, prefill_, decode_, end_to_end_, prompt_tokens_, generated_tokens_, first_token_,
      inter_token_;
  Histogram step_tokens_;
};

}  // namespace invar
