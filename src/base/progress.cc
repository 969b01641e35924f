#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "base/quote.h"
#include "base/size_text.h"

namespace invar {
namespace {

constexpr int64_t kTerminalPeriodNs = 100'000'000;
constexpr int64_t kPlainPeriodNs = 5'000'000'000;

}  // namespace

Progress::Progress(const std::string& label, int64_t total, Unit unit)
    : label_(printable(label)),  // it may hold a name that somebody else chose
      total_(total),
      unit_(unit),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_ns_(now_ns()) {
  next_draw_ns_ = start_ns_ + (terminal_ ? kTerminalPeriodNs : kPlainPeriodNs);
  draw(false);
}

Progress::~Progress() {
  draw(true);
}

void Progress::advance(int64_t amount) {
  done_.fetch_add(amount, std::memory_order_relaxed);
  const int64_t now = now_ns();
  int64_t due = next_draw_ns_.load(std::memory_order_relaxed);
  // One thread wins the right to draw.
  if (now >= due &&
      next_draw_ns_.compare_exchange_strong(due, now + (terminal_ ? kTerminalPeriodNs : kPlainPeriodNs))) {
    draw(false);
  }
}

void Progress::draw(bool last) {
  const int64_t done = done_.load(std::memory_order_relaxed);
  const double seconds = double(now_ns() - start_ns_) * 1e-9;
  const auto amount = [&](int64_t n) {
    return unit_ == Unit::kBytes ? size_text(uint64_t(std::max<int64_t>(n, 0))) : fmt::format("{}", n);
  };
  std::string line = label_;
  if (total_ > 0) {
    line += fmt::format(": {:.0f}% of {}", 100.0 * double(std::min(done, total_)) / double(total_),
                        amount(total_));
  } else {
    line += fmt::format(": {}", amount(done));
  }
  if (const double rate = seconds > 0 ? double(done) / seconds : 0; rate >= 1)
    line += fmt::format(", {}/s", amount(int64_t(rate)));
  if (last) line += fmt::format(", {:.1f} s", seconds);
  if (terminal_) {
    line = "\r\x1b[K" + line + (last ? "\n" : "");
  } else {
    line += '\n';
  }
  std::fwrite(line.data(), 1, line.size(), stderr);  // one call, so that lines of several threads do not mix
  std::fflush(stderr);
}

}  // namespace invar
