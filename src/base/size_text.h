#pragma once
// Byte counts as people write them. "2GiB", "2G" and "2 g" are 2^31 bytes, "2GB" is 2 * 10^9; no suffix means
// bytes. Fractions ("1.5G") are allowed with a suffix.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace invar {

Result<uint64_t> parse_size(std::string_view text);

// The largest binary unit that keeps the number at 1 or more: "98.4 MiB", "512 B".
std::string size_text(uint64_t bytes);

}  // namespace invar
