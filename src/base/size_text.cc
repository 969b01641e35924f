#include "base/size_text.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>

namespace invar {

Result<uint64_t> parse_size(std::string_view text) {
  const auto bad = [&](std::string_view why) {
    return invalid_argument(fmt::format("size '{}': {}; write for example 512M, 2GiB or 1.5G", text, why));
  };
  size_t at = 0;
  uint64_t whole = 0;
  const auto digit = [&] { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
  if (!digit()) return bad("does not start with a number");
  for (; digit(); ++at) {
    if (__builtin_mul_overflow(whole, uint64_t{10}, &whole) ||
        __builtin_add_overflow(whole, uint64_t(text[at] - '0'), &whole)) {
      return bad("is too large");
    }
  }
  double fraction = 0;
  const bool has_fraction = at < text.size() && text[at] == '.';
  if (has_fraction) {
    ++at;
    if (!digit()) return bad("has no digits after the point");
    for (double place = 0.1; digit(); ++at, place /= 10)
      fraction += place * (text[at] - '0');
  }
  while (at < text.size() && text[at] == ' ')
    ++at;

  std::string suffix;
  for (; at < text.size(); ++at)
    suffix += char(std::tolower(static_cast<unsigned char>(text[at])));
  uint64_t unit = 1;
  if (!suffix.empty() && suffix != "b") {
    static constexpr std::string_view kLetters = "kmgt";
    const size_t power = kLetters.find(suffix[0]);
    const std::string_view rest = std::string_view(suffix).substr(1);
    if (power == std::string_view::npos || (rest != "" && rest != "b" && rest != "i" && rest != "ib")) {
      return bad("has an unknown unit");
    }
    for (size_t i = 0; i <= power; ++i)
      unit *= rest == "b" ? 1000 : 1024;
  }
  if (has_fraction && unit == 1) return bad("is not a whole number of bytes");
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(whole, unit, &bytes) ||
      __builtin_add_overflow(bytes, uint64_t(std::llround(fraction * double(unit))), &bytes)) {
    return bad("is too large");
  }
  return bytes;
}

std::string size_text(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  int unit = 0;
  double value = double(bytes);
  while (value >= 1023.95 && unit < 6) {  // would print as 1024.0
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace invar
