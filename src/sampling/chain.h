#pragma once
// The order of the chain, as a request may give it: names of links ("penalties", "dry", "temperature",
// "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc"). What is not named does not run. Mask and
// min_tokens go first and mirostat last whatever the list says; the bias goes in front of the first link that
// is neither "penalties" nor "dry".

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace invar {

// For SamplingParams::chain. kInvalidArgument: an unknown name, or one that comes twice; lists the known
// ones.
Result<std::vector<uint8_t>> chain_of(std::span<const std::string_view> names);

// The same for llama.cpp's short form, a letter per link: "edskypmxt". An unknown letter, or one that comes
// twice, is refused with the known ones.
Result<std::vector<uint8_t>> chain_of_letters(std::string_view letters);

// The names in "A;B".
std::vector<std::string_view> split_links(std::string_view text);

// "penalties, dry, ...", in the default order.
std::string link_names();

}  // namespace invar
