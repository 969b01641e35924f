#pragma once
// Log lines on stderr, through spdlog. The level is set once in cli/. Prompts and tokens are never logged.

#include <fmt/format.h>

#include <string_view>

namespace invar {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

void set_log_level(LogLevel level);
void log_text(LogLevel level, std::string_view text);

template <class... Args>
void log_info(fmt::format_string<Args...> f, Args&&... args) {
  log_text(LogLevel::kInfo, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(fmt::format_string<Args...> f, Args&&... args) {
  log_text(LogLevel::kError, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> f, Args&&... args) {
  log_text(LogLevel::kWarning, fmt::format(f, std::forward<Args>(args)...));
}

}  // namespace invar
