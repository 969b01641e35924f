#pragma once
// What is well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace invar {

// Bytes of the character that starts with this byte; 0: none does.
int utf8_length_of(uint8_t first);
// Whether `byte` may stand at `position` (1, 2, 3) of a character that starts with `first`.
bool utf8_continues(uint8_t first, int position, uint8_t byte);

// How many bytes at the front are one whole character; 0 if they are none.
size_t utf8_length(std::string_view bytes);
bool is_utf8(std::string_view bytes);

// The text behind a byte order mark, which some editors put in front of a file.
std::string_view without_bom(std::string_view text);

}  // namespace invar
