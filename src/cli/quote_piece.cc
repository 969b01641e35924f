#include "cli/quote_piece.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace invar {

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
