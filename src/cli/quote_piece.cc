#include "cli/quote_piece.h"

#include <fmt/format.h>

namespace invar {

size_t utf8_length(std::string_view s) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  if (s.empty()) return 0;
  const unsigned char lead = at(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 && lead <= 0xF4  ? 4
                        : lead >= 0xE0 && lead < 0xF0 ? 3
                        : lead >= 0xC2 && lead < 0xE0 ? 2
                                                      : 0;
  if (length == 0 || s.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and what lies beyond U+10FFFF.
  if ((lead == 0xE0 && at(1) < 0xA0) || (lead == 0xED && at(1) >= 0xA0) || (lead == 0xF0 && at(1) < 0x90) ||
      (lead == 0xF4 && at(1) >= 0x90))
    return 0;
  return length;
}

bool is_utf8(std::string_view s) {
  while (!s.empty()) {
    const size_t n = utf8_length(s);
    if (n == 0) return false;
    s.remove_prefix(n);
  }
  return true;
}

std::string quote_piece(std::string_view bytes, size_t most) {
  std::string out = "\"";
  while (!bytes.empty()) {
    if (out.size() > most) return out + "\"...";
    const auto lead = static_cast<unsigned char>(bytes[0]);
    const size_t length = utf8_length(bytes);
    // C1 controls (U+0080 to U+009F) can also steer a terminal.
    const bool c1 = length == 2 && lead == 0xC2 && static_cast<unsigned char>(bytes[1]) < 0xA0;
    if (length == 0 || (length == 1 && (lead < 0x20 || lead == 0x7F)) || c1) {
      out += lead == '\n' ? "\\n" : lead == '\t' ? "\\t" : fmt::format("\\x{:02x}", lead);
      bytes.remove_prefix(1);
      continue;
    }
    if (lead == '"' || lead == '\\') out += '\\';
    out += bytes.substr(0, length);
    bytes.remove_prefix(length);
  }
  return out + "\"";
}

}  // namespace invar
