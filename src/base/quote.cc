#include "base/quote.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/utf8.h"

namespace invar {
namespace {

// U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069 turn what stands beside them; U+2028 and U+2029 are new
// lines.
bool turns_or_breaks(std::string_view c) {
  if (c.size() != 3 || c[0] != '\xE2') return false;
  const auto last = static_cast<unsigned char>(c[2]);
  if (c[1] == '\x80') return last == 0x8E || last == 0x8F || (last >= 0xA8 && last <= 0xAE);
  return c[1] == '\x81' && last >= 0xA6 && last <= 0xA9;
}

bool steers(std::string_view c) {
  const auto lead = static_cast<unsigned char>(c[0]);
  if (c.size() == 1) return lead < 0x20 || lead == 0x7F;
  // C1 controls (U+0080 to U+009F) steer a terminal as well.
  return (lead == 0xC2 && static_cast<unsigned char>(c[1]) < 0xA0) || turns_or_breaks(c);
}

// The first character of the text, or a byte that is none, as it is shown; it is taken off the text.
std::string take(std::string_view* text, std::string_view escaped) {
  const size_t length = utf8_length(*text);
  const std::string_view c = text->substr(0, length == 0 ? 1 : length);
  text->remove_prefix(c.size());
  if (c == "\n") return "\\n";
  if (c == "\t") return "\\t";
  std::string out;
  if (length != 0 && !steers(c)) {
    if (escaped.find(c) != std::string_view::npos) out += '\\';
    return out += c;
  }
  for (const char byte : c)
    out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return out;
}

// The whole where it has at most `most` bytes, else its start and its end in `room` bytes, "..." between.
std::string shortened(std::string_view bytes, size_t most, size_t room) {
  // No more is looked at than can be shown, however long the text is.
  const bool cut = bytes.size() > most;
  std::string whole;
  for (std::string_view rest = bytes.substr(0, most); !rest.empty();)
    whole += take(&rest, "");
  if (!cut && whole.size() <= most) return whole;

  const size_t head_room = room - room / 2, tail_room = room / 2;
  std::string_view start = bytes.substr(0, head_room);
  std::string_view end = bytes.substr(bytes.size() - std::min(bytes.size(), tail_room));
  std::string head;
  while (!start.empty()) {
    const std::string next = take(&start, "");
    if (head.size() + next.size() > head_room) break;
    head += next;
  }
  // It may start inside a character: those bytes are not shown.
  while (!end.empty() && (static_cast<unsigned char>(end[0]) & 0xC0) == 0x80)
    end.remove_prefix(1);
  std::vector<std::string> tail;
  while (!end.empty())
    tail.push_back(take(&end, ""));
  size_t first = tail.size(), size = 0;
  while (first > 0 && size + tail[first - 1].size() <= tail_room)
    size += tail[--first].size();
  return fmt::format("{}...{}", head,
                     fmt::join(tail.begin() + static_cast<ptrdiff_t>(first), tail.end(), ""));
}

}  // namespace

std::string quote(std::string_view bytes, size_t most) {
  std::string out = "\"";
  while (!bytes.empty()) {
    if (out.size() > most) return out + "\"...";
    out += take(&bytes, "\"\\");
  }
  return out + "\"";
}

std::string printable(std::string_view bytes, size_t most) {
  return shortened(bytes, most, most);
}

std::string printable_within(std::string_view bytes, size_t most) {
  constexpr size_t kDots = 3;
  return shortened(bytes, most, most > kDots ? most - kDots : 0);
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
