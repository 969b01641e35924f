#pragma once
// Bytes of unknown origin (token pieces, strings of a model file) made safe to print.

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

namespace invar {

// In double quotes; control characters and bytes that are no UTF-8 as \n, \t or \xNN. After `most` bytes of
// output the rest is "...".
std::string quote_piece(std::string_view bytes, size_t most = std::numeric_limits<size_t>::max());

}  // namespace invar
