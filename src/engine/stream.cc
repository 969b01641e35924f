#include "engine/stream.h"

#include <iterator>
#include <utility>

namespace invar {

std::shared_ptr<Stream> Stream::handle_of(std::shared_ptr<Stream> stream) {
  Stream* const raw = stream.get();
  return {raw, [owner = std::move(stream)](Stream* s) { s->cancel(); }};
}

// An answer that has come to its end is nobody's news.
void Stream::cancel() {
  cancelled_.store(true, std::memory_order_release);
  if (cancels_ != nullptr && !ended_.load(std::memory_order_relaxed))
    cancels_->store(true, std::memory_order_release);
}

std::optional<TokenEvent> Stream::next_taken() {
  if (next_ < taken_.size()) return std::move(taken_[next_++]);
  taken_.clear();
  next_ = 0;
  return std::nullopt;
}

TokenEvent Stream::next() {
  while (true) {
    if (auto event = next_taken()) return std::move(*event);
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return !events_.empty(); });
    std::swap(events_, taken_);
  }
}

std::optional<TokenEvent> Stream::try_next() {
  if (auto event = next_taken()) return event;
  {
    std::lock_guard lock(mutex_);
    std::swap(events_, taken_);
  }
  return next_taken();
}

void Stream::push_all(std::vector<TokenEvent>& events) {
  if (events.empty()) return;
  if (events.back().finish != FinishReason::kNone) ended_.store(true, std::memory_order_relaxed);
  {
    std::lock_guard lock(mutex_);
    if (events_.empty()) {
      std::swap(events_, events);
    } else {
      events_.insert(events_.end(), std::make_move_iterator(events.begin()),
                     std::make_move_iterator(events.end()));
    }
  }
  events.clear();
  ready_.notify_one();
}

void Stream::push(TokenEvent event) {
  std::vector<TokenEvent> events;
  events.push_back(std::move(event));
  push_all(events);
}

}  // namespace invar
