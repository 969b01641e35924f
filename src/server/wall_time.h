#pragma once
// The wall clock, for people who read logs; never for durations.

#include <cstdint>
#include <string>

namespace invar::server {

int64_t unix_now_ns();  // since 1970
// "2026-01-31T12:34:56.789Z"
std::string utc_text(int64_t unix_ns);

}  // namespace invar::server
