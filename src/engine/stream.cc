#include "engine/stream.h"

#include <iterator>
#include <utility>

namespace invar {

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
  {
    std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  ready_.notify_one();
}

}  // namespace invar
