#pragma once
// Stream: the tokens of one request on their way out. Single producer (engine thread), single consumer. Dropping
// the consumer's handle, or cancel(), makes the engine free the request within one step.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/status.h"

namespace invar {

enum class FinishReason : uint8_t { kNone, kStop, kLength, kCancelled, kError };

struct TokenLogprob {
  int32_t token;
  float logprob;  // natural log, of the raw distribution
};

struct TokenEvent {
  std::optional<int32_t> token;            // absent in a closing event without a token
  float logprob = 0;                       // set when asked for
  std::vector<TokenLogprob> alternatives;  // most likely first
  FinishReason finish = FinishReason::kNone;
  Status error;                            // with kError
};

class Stream {
 public:
  // Consumer: the next event; blocks until one is there. After an event with finish != kNone nothing follows.
  TokenEvent next();
  std::optional<TokenEvent> try_next();
  void cancel() { cancelled_.store(true, std::memory_order_release); }

  // Producer (engine thread).
  void push(TokenEvent event);
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<TokenEvent> events_;
};

}  // namespace invar
