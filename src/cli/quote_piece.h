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

// How many bytes at the front are one whole UTF-8 character; 0 if they are none.
size_t utf8_length(std::string_view bytes);
bool is_utf8(std::string_view bytes);

}  // namespace invar
