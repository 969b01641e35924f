#pragma once
// Base64 with padding (RFC 4648, 4), for bytes that are not text.

#include <optional>
#include <string>
#include <string_view>

namespace invar {

std::string base64_text(std::string_view bytes);
std::optional<std::string> base64_bytes(std::string_view text);  // none: not base64

}  // namespace invar
