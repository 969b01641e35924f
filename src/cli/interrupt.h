#pragma once
// Interrupt: Ctrl-C, SIGTERM and SIGHUP (unless it was ignored) as a call on a thread of their own, so that
// work can be cancelled cleanly. Create it before any other thread starts. The first signal calls the
// handler; a second one, or one while no handler is set, removes unfinished files (base/temporary_files.h)
// and ends the process with exit code 130.

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

namespace invar {

class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // What the first signal does; empty takes it away. When this returns, the previous handler is not running.
  void on_signal(std::function<void()> handler);
  // The same for Ctrl-C alone: the others end the process as if no handler were set.
  void on_ctrl_c(std::function<void()> handler);
  // Forgets the signal that was seen: the next one is a first one again.
  void rearm();
  bool seen() const { return seen_.load(std::memory_order_acquire); }

 private:
  void watch();

  std::mutex mutex_;
  std::function<void()> handler_;
  bool ctrl_c_only_ = false;
  std::atomic<bool> seen_{false};
  int signals_ = -1;  // signalfd
  int stop_ = -1;     // eventfd
  std::thread thread_;
};

}  // namespace invar
