#include "base/utf8.h"

namespace invar {

int utf8_length_of(uint8_t first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  if (first >= 0xF0 && first <= 0xF4) return 4;
  return 0;
}

bool utf8_continues(uint8_t first, int position, uint8_t byte) {
  uint8_t low = 0x80, high = 0xBF;
  if (position == 1) {
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  }
  return byte >= low && byte <= high;
}

size_t utf8_length(std::string_view bytes) {
  if (bytes.empty()) return 0;
  const auto first = static_cast<uint8_t>(bytes[0]);
  const int length = utf8_length_of(first);
  if (bytes.size() < static_cast<size_t>(length)) return 0;
  for (int i = 1; i < length; ++i)
    if (!utf8_continues(first, i, static_cast<uint8_t>(bytes[static_cast<size_t>(i)]))) return 0;
  return static_cast<size_t>(length);
}

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t n = utf8_length(bytes);
    if (n == 0) return false;
    bytes.remove_prefix(n);
  }
  return true;
}

std::string_view without_bom(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  return text;
}

}  // namespace invar
