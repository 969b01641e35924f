#pragma once
// Text of unknown origin (names, messages and token pieces of a model file) made safe to print: control
// characters, characters that turn the direction of writing, and bytes that are no UTF-8 become \n, \t or
// \xNN.

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

namespace invar {

inline constexpr size_t kQuoteAll = std::numeric_limits<size_t>::max();

// In double quotes, with \" and \\ for those two. After `most` bytes of output the rest is "...".
std::string quote(std::string_view bytes, size_t most = 100);

// The same without quotes, and those two characters as they are: for whole messages. What is longer than
// `most` bytes keeps its start and its end, with "..." between: the end of a message is its remedy.
std::string printable(std::string_view bytes, size_t most = 200);

// The same, and with its "..." no longer than `most` either.
std::string printable_within(std::string_view bytes, size_t most);

// Serialized JSON means the same and steers no terminal: DEL and the controls U+0080 to U+009F, which JSON
// lets pass, become escapes.
std::string json_for_terminal(std::string_view json);

}  // namespace invar
