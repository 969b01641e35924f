#include "engine/stream.h"

#include <utility>

namespace invar {

TokenEvent Stream::next() {
  std::unique_lock lock(mutex_);
  ready_.wait(lock, [&] { return !events_.empty(); });
  TokenEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

std::optional<TokenEvent> Stream::try_next() {
  std::lock_guard lock(mutex_);
  if (events_.empty()) return std::nullopt;
  TokenEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void Stream::push(TokenEvent event) {
  {
    std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  ready_.notify_one();
}

}  // namespace invar
