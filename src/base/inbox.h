#pragma once
// Inbox: many producers, one consumer. The only way work enters the engine thread. Wakes a sleeping consumer.

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace invar {

template <class T>
class Inbox {
 public:
  void push(T item) {
    {
      std::lock_guard lock(mutex_);
      items_.push_back(std::move(item));
    }
    ready_.notify_one();
  }

  // Takes everything that is there, without waiting.
  std::vector<T> drain() {
    std::lock_guard lock(mutex_);
    return std::exchange(items_, {});
  }

  // Sleeps until something is there or stop_waiting() is called.
  void wait() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return !items_.empty() || stopped_; });
  }

  void stop_waiting() {
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    ready_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<T> items_;
  bool stopped_ = false;
};

}  // namespace invar
