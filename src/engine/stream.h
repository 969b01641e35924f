#pragma once
// Stream: the tokens of one request on their way out. Single producer (engine thread), single consumer.
// cancel(), or dropping the consumer's handle, makes the engine free the request within one step. The two
// sides hand each other the same two arrays, so that a stream in flow allocates nothing.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kv/prefix_cache.h"
#include "sampling/logprobs.h"

namespace invar {

enum class FinishReason : uint8_t {
  kNone,
  kStop,    // a stop id or the guard
  kLength,  // max_tokens or the context is reached
  kCancelled,
  kError,
};

// What of a prompt did not have to be computed, because others had.
struct PromptReuse {
  int32_t cached_tokens = 0;
  PrefixLookup lookup;       // the one that found most: why it ended,
  int32_t end_position = 0;  // and where
};

struct TokenEvent {
  std::optional<int32_t> token;            // absent in a closing event without a token
  float logprob = 0;                       // set when asked for; 0 for a token that a guard forced
  std::vector<TokenLogprob> alternatives;  // most likely first; none for a forced token
  bool of_prompt = false;                  // a token of the prompt, not of the answer (prompt_logprobs)
  int64_t published_ns = 0;                // now_ns() when the engine let go of it
  FinishReason finish = FinishReason::kNone;
  Status error;  // with kError
  // Of the request so far:
  PromptReuse prompt;
  int64_t queued_ns = -1;   // from submit() until a step had a row of it; -1 = none had
  int32_t preemptions = 0;  // how often its pages were taken away
};

class Stream {
 public:
  Stream() = default;
  // cancels: raised, after cancelled() is true, by every cancel() before the end.
  explicit Stream(std::shared_ptr<std::atomic<bool>> cancels) : cancels_(std::move(cancels)) {}

  // What the consumer holds: when its last copy goes, the request is cancelled.
  static std::shared_ptr<Stream> handle_of(std::shared_ptr<Stream> stream);

  // Consumer: the next event; blocks until one is there. After an event with finish != kNone nothing follows.
  TokenEvent next();
  std::optional<TokenEvent> try_next();
  void cancel();

  // Producer (engine thread). Takes all events, in order; leaves an empty vector with room for later ones.
  void push_all(std::vector<TokenEvent>& events);
  void push(TokenEvent event);
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

 private:
  // The next event that the consumer has taken over, if any is left.
  std::optional<TokenEvent> next_taken();

  const std::shared_ptr<std::atomic<bool>> cancels_;  // may be null
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> ended_{false};  // the last event was pushed
  std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<TokenEvent> events_;  // under the mutex
  std::vector<TokenEvent> taken_;   // the consumer's own
  size_t next_ = 0;                 // in taken_
};

}  // namespace invar
