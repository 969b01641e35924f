#include "format/quote_name.h"

#include <fmt/format.h>

namespace invar {

std::string quote_name(std::string_view name) {
  constexpr size_t kShown = 100;
  std::string text = "\"";
  for (const char c : name.substr(0, kShown)) {
    if (c >= 0x20 && c < 0x7F && c != '"' && c != '\\') {
      text += c;
    } else {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return text + (name.size() > kShown ? "...\"" : "\"");
}

}  // namespace invar
