#include "cli/terminal_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/utf8.h"

namespace invar {
namespace {

// U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069: they reorder what stands beside them. U+2028, U+2029:
// new lines.
bool turns_or_breaks(std::string_view c) {
  if (c.size() != 3 || c[0] != '\xE2') return false;
  const auto last = static_cast<unsigned char>(c[2]);
  if (c[1] == '\x80') return last == 0x8E || last == 0x8F || (last >= 0xA8 && last <= 0xAE);
  return c[1] == '\x81' && last >= 0xA6 && last <= 0xA9;
}

bool steers(std::string_view c) {
  const auto lead = static_cast<unsigned char>(c[0]);
  if (c.size() == 1) return lead < 0x20 || lead == 0x7F;
  const bool c1 = lead == 0xC2 && static_cast<unsigned char>(c[1]) < 0xA0;
  return c1 || turns_or_breaks(c);
}

// One character of the text, or one byte that is none, as it is shown.
std::string shown(std::string_view c, bool whole) {
  if (c == "\n") return "\\n";
  if (c == "\t") return "\\t";
  if (whole && !steers(c)) return std::string(c);
  std::string out;
  for (const char byte : c)
    out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return out;
}

}  // namespace

std::string terminal_text(std::string_view text, size_t most) {
  constexpr std::string_view kCut = "...";
  // Bytes that can be shown at all: no more is looked at, however long the text is.
  std::string_view front = text, back;
  if (text.size() > most) front = text.substr(0, most), back = text.substr(text.size() - most);
  const auto pieces_of = [](std::string_view s) {
    std::vector<std::string> pieces;
    while (!s.empty()) {
      const size_t length = utf8_length(s), taken = length == 0 ? 1 : length;
      pieces.push_back(shown(s.substr(0, taken), length != 0));
      s.remove_prefix(taken);
    }
    return pieces;
  };
  const auto pieces = pieces_of(front);
  std::string whole;
  for (const std::string& p : pieces)
    whole += p;
  if (back.empty() && whole.size() <= most) return whole;

  const size_t room = most > kCut.size() ? most - kCut.size() : 0;
  std::string head, tail;
  for (const std::string& p : pieces) {
    if (head.size() + p.size() > room - room / 2) break;
    head += p;
  }
  // The tail may start inside a character: those bytes are not shown.
  if (back.empty()) back = front;
  while (!back.empty() && (static_cast<unsigned char>(back[0]) & 0xC0) == 0x80)
    back.remove_prefix(1);
  const auto last = pieces_of(back);
  for (auto p = last.rbegin(); p != last.rend(); ++p) {
    if (tail.size() + p->size() > room / 2) break;
    tail = *p + tail;
  }
  return head + std::string(kCut) + tail;
}

std::string json_for_terminal(std::string_view json) {
  std::string out;
  while (!json.empty()) {
    const size_t length = std::max<size_t>(utf8_length(json), 1);
    const std::string_view c = json.substr(0, length);
    json.remove_prefix(length);
    if (c == "\x7F")
      out += "\\u007f";
    else if (length == 2 && c[0] == '\xC2' && steers(c))
      out += fmt::format("\\u00{:02x}", static_cast<unsigned char>(c[1]));
    else
      out += c;
  }
  return out;
}

}  // namespace invar
