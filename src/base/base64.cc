#include "base/base64.h"

#include <cstdint>

namespace invar {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string base64_text(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t j = 0; j < 3; j++)
      group = group << 8 | (i + j < bytes.size() ? uint8_t(bytes[i + j]) : 0);
    for (size_t j = 0; j < 4; j++) {
      out.push_back(i + j <= bytes.size() ? kDigits[group >> (18 - 6 * j) & 63] : '=');
    }
  }
  return out;
}

std::optional<std::string> base64_bytes(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  for (int i = 0; i < 2 && text.ends_with('='); i++)
    text.remove_suffix(1);
  if (text.size() % 4 == 1) return std::nullopt;
  std::string out;
  uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    group = group << 6 | uint32_t(digit);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out.push_back(char(group >> bits & 0xff));
    }
  }
  return out;
}

}  // namespace invar
