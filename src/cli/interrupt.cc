#include "cli/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

#include "base/check.h"
#include "base/temporary_files.h"
#include "cli/verbs.h"

namespace invar {
namespace {

sigset_t watched() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  // Of a terminal that goes away. Whoever started us with it ignored (nohup) wants us to stay; blocked it
  // would come all the same.
  struct sigaction hangup{};
  if (::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  return set;
}

}  // namespace

Interrupt::Interrupt() {
  const sigset_t set = watched();
  CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);  // inherited by every later thread
  signals_ = signalfd(-1, &set, SFD_CLOEXEC);
  stop_ = eventfd(0, EFD_CLOEXEC);
  CHECK(signals_ >= 0 && stop_ >= 0);
  thread_ = std::thread([this] { watch(); });
}

Interrupt::~Interrupt() {
  const uint64_t one = 1;
  CHECK(::write(stop_, &one, sizeof one) == ssize_t(sizeof one));
  thread_.join();
  ::close(signals_);
  ::close(stop_);
  const sigset_t set = watched();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void Interrupt::on_signal(std::function<void()> handler) {
  const std::lock_guard lock(mutex_);
  handler_ = std::move(handler);
  ctrl_c_only_ = false;
}

void Interrupt::on_ctrl_c(std::function<void()> handler) {
  const std::lock_guard lock(mutex_);
  handler_ = std::move(handler);
  ctrl_c_only_ = true;
}

void Interrupt::rearm() {
  const std::lock_guard lock(mutex_);
  seen_ = false;
}

void Interrupt::watch() {
  while (true) {
    pollfd fds[2] = {{signals_, POLLIN, 0}, {stop_, POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0) continue;
    if (fds[1].revents != 0) return;
    signalfd_siginfo info;
    if (::read(signals_, &info, sizeof info) != ssize_t(sizeof info)) continue;
    const std::lock_guard lock(mutex_);
    const bool handled = handler_ && !(ctrl_c_only_ && info.ssi_signo != uint32_t{SIGINT});
    if (seen_.exchange(true) || !handled) exit_without_temporaries(kExitInterrupted);
    handler_();
  }
}

}  // namespace invar
