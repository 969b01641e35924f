#pragma once
// Suggestions for mistyped names: "unknown flag --thread; did you mean --threads?"

#include <span>
#include <string>
#include <string_view>

namespace invar {

// Insertions, deletions, replacements and swaps of neighbours that turn a into b.
int text_distance(std::string_view a, std::string_view b);

// The candidate nearest to `text`, or "" if none is near enough to be a likely typing error. First wins on
// ties.
std::string nearest_text(std::string_view text, std::span<const std::string> candidates);

}  // namespace invar
