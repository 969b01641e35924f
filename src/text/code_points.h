#pragma once
// UTF-8 to code points and back, for well-formed text.

#include <string>
#include <string_view>

#include "base/utf8.h"

namespace invar::text {

// Takes the first character off a text that is not empty; a byte that starts none stands for itself.
inline char32_t take_code_point(std::string_view& text) {
  const size_t length = utf8_length(text);
  const auto first = static_cast<unsigned char>(text[0]);
  if (length <= 1) {
    text.remove_prefix(1);
    return first;
  }
  char32_t c = first & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i)
    c = (c << 6) | (static_cast<unsigned char>(text[i]) & 0x3Fu);
  text.remove_prefix(length);
  return c;
}

inline std::u32string code_points(std::string_view text) {
  std::u32string out;
  while (!text.empty())
    out.push_back(take_code_point(text));
  return out;
}

inline void append_utf8(char32_t c, std::string& out) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
    return;
  }
  const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  out.push_back(static_cast<char>((0xFF00u >> (more + 1) & 0xFFu) | c >> (6 * more)));
  for (int i = more - 1; i >= 0; --i)
    out.push_back(static_cast<char>(0x80u | (c >> (6 * i) & 0x3Fu)));
}

}  // namespace invar::text
