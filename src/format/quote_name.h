#pragma once
// Names from hostile files inside messages: short, printable, in quotes.

#include <string>
#include <string_view>

namespace invar {

std::string quote_name(std::string_view name);

}  // namespace invar
