#include "base/mapped_fault.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <utility>

namespace invar {
namespace {

constexpr size_t kPathBytes = 1024;

// A signal handler may read nothing but such plain memory.
struct Slot {
  std::atomic<bool> taken{false};
  std::atomic<uintptr_t> begin{0}, end{0};  // end: written last, and set to 0 first
  char path[kPathBytes];
  size_t path_bytes;
};

Slot slots[64];
struct sigaction previous;

size_t append(char* line, size_t at, const char* text, size_t bytes) {
  std::memcpy(line + at, text, bytes);
  return at + bytes;
}

size_t append(char* line, size_t at, const char* text) {
  return append(line, at, text, std::strlen(text));
}

void on_fault(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Slot& slot : slots) {
    if (address >= slot.end.load(std::memory_order_acquire) || address < slot.begin.load()) continue;
    char line[kPathBytes + 256];
    size_t size = append(line, 0, "invar: ");
    size = append(line, size, slot.path, slot.path_bytes);
    size = append(
        line, size,
        ": the file was cut short while it was in use, or its disk cannot be read; put a whole file there "
        "and start again\n");
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line, size);
    ::_exit(1);
  }
  ::sigaction(SIGBUS, &previous, nullptr);  // not ours: the same instruction faults again
}

void take_over() {
  [[maybe_unused]] static const bool once = [] {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    return ::sigaction(SIGBUS, &action, &previous) == 0;
  }();
}

}  // namespace

MappedFault::MappedFault(std::span<const std::byte> mapped, std::string_view path) {
  if (mapped.empty()) return;
  take_over();
  // The last page is mapped in full, and cutting the file takes it along.
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(mapped.data());
  const uintptr_t end = (begin + mapped.size() + page - 1) / page * page;
  for (size_t i = 0; i < std::size(slots); ++i) {
    Slot& slot = slots[i];
    if (slot.taken.exchange(true, std::memory_order_acquire)) continue;
    slot.path_bytes = std::min(path.size(), kPathBytes);
    std::memcpy(slot.path, path.data(), slot.path_bytes);
    slot.begin.store(begin);
    slot.end.store(end, std::memory_order_release);
    slot_ = static_cast<int>(i);
    return;
  }
}

MappedFault::MappedFault(MappedFault&& other) noexcept : slot_(std::exchange(other.slot_, -1)) {}

MappedFault& MappedFault::operator=(MappedFault&& other) noexcept {
  std::swap(slot_, other.slot_);
  return *this;
}

MappedFault::~MappedFault() {
  if (slot_ < 0) return;
  Slot& slot = slots[slot_];
  slot.end.store(0);
  slot.taken.store(false, std::memory_order_release);
}

}  // namespace invar
