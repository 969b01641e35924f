#pragma once
// BackgroundQueue<T>: items for a slow consumer (a disk, a terminal) on a thread of its own. push() never
// waits: what does not fit is dropped and counted. Any thread may push.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace invar::server {

template <class T>
class BackgroundQueue {
 public:
  // `consume` gets items in order, many at once, and how many were lost before them.
  using Consume = std::function<void(std::vector<T>& items, uint64_t lost)>;

  BackgroundQueue(size_t capacity_bytes, Consume consume)
      : capacity_bytes_(capacity_bytes), consume_(std::move(consume)), thread_([this] { work(); }) {}
  // After everything pushed so far was consumed.
  ~BackgroundQueue() {
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    ready_.notify_one();
    thread_.join();
  }

  // False: dropped.
  bool push(T item, size_t bytes) {
    {
      std::lock_guard lock(mutex_);
      if (bytes_ + bytes > capacity_bytes_) {
        lost_++;
        return false;
      }
      bytes_ += bytes;
      items_.push_back(std::move(item));
      if (items_.size() > 1) return true;  // it was woken for the first one
    }
    ready_.notify_one();
    return true;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      ready_.wait(lock, [&] { return stopped_ || !items_.empty(); });
      if (items_.empty()) return;
      std::vector<T> items = std::exchange(items_, {});
      const size_t bytes = bytes_;
      const uint64_t lost = std::exchange(lost_, 0);
      lock.unlock();
      consume_(items, lost);
      items.clear();
      lock.lock();
      bytes_ -= bytes;  // counted until they are gone, so that memory is bounded
    }
  }

  const size_t capacity_bytes_;
  Consume consume_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<T> items_;
  size_t bytes_ = 0;
  uint64_t lost_ = 0;
  bool stopped_ = false;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace invar::server
