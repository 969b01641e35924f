#pragma once
// Text of unknown origin (names and messages that quote a file, arguments) made safe for a terminal, and
// short. Unlike quote_piece it adds no quotes and leaves quotes and backslashes alone: for whole messages.

#include <cstddef>
#include <string>
#include <string_view>

namespace invar {

// Control characters, characters that turn the direction of writing, and bytes that are no UTF-8 become \n,
// \t or \xNN. What is longer than `most` bytes keeps its start and its end, with "..." between: the end of a
// message is its remedy.
std::string terminal_text(std::string_view text, size_t most);

// Serialized JSON means the same and steers no terminal: DEL and the controls U+0080 to U+009F, which JSON
// lets pass, become escapes.
std::string json_for_terminal(std::string_view json);

}  // namespace invar
