#pragma once
// A short text of several kinds (a story, an explanation, a dialogue, a program, a table, four languages), so
// that two models can be compared where nobody names a file. Its figures are comparable only with those of
// the same text.

#include <string_view>

namespace invar {

std::string_view built_in_text();

}  // namespace invar
