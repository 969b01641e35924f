#include "server/wall_time.h"

#include <fmt/format.h>

#include <chrono>
#include <ctime>

namespace invar::server {

int64_t unix_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string utc_text(int64_t unix_ns) {
  const time_t seconds = time_t(unix_ns / 1'000'000'000);
  tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, unix_ns / 1'000'000 % 1000);
}

}  // namespace invar::server
