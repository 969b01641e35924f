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

}  // namespace invar
