#include "sampling/chain.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.h"
#include "sampling/processor.h"

namespace invar {
namespace {

// f(Processor): the first of each link, in the default order.
template <class F>
void for_each_link(F f) {
  std::string_view last;
  for (const Processor& p : processors()) {
    if (p.link == nullptr || p.link == last) continue;
    last = p.link;
    f(p);
  }
}

void append_fixed(std::string_view name, std::vector<uint8_t>* chain) {
  const auto all = processors();
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].name == name) chain->push_back(uint8_t(i));
}

}  // namespace

std::vector<std::string_view> split_links(std::string_view text) {
  std::vector<std::string_view> names;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(';', at), text.size());
    names.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return names;
}

std::string link_names() {
  std::string names;
  for_each_link([&](const Processor& p) { names += fmt::format("{}{}", names.empty() ? "" : ", ", p.link); });
  return names;
}

Result<std::vector<uint8_t>> chain_of(std::span<const std::string_view> names) {
  const auto all = processors();
  std::vector<uint8_t> chain;
  append_fixed("mask", &chain);
  append_fixed("min_tokens", &chain);
  bool biased = false;
  for (size_t n = 0; n < names.size(); ++n) {
    const std::string_view name = names[n];
    if (std::find(names.begin(), names.begin() + ptrdiff_t(n), name) != names.begin() + ptrdiff_t(n))
      return invalid_argument(
          fmt::format("{} comes twice; each of {} may come once", quote(name), link_names()));
    if (!biased && name != "penalties" && name != "dry") {
      append_fixed("bias", &chain);
      biased = true;
    }
    const size_t before = chain.size();
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].link != nullptr && all[i].link == name) chain.push_back(uint8_t(i));
    if (chain.size() == before)
      return invalid_argument(fmt::format("{} is unknown; there are {}", quote(name), link_names()));
  }
  if (!biased) append_fixed("bias", &chain);
  append_fixed("mirostat", &chain);
  return chain;
}

Result<std::vector<uint8_t>> chain_of_letters(std::string_view letters) {
  std::vector<std::string_view> names;
  for (const char& letter : letters) {
    const size_t before = names.size();
    for_each_link([&](const Processor& p) {
      if (p.letter == letter) names.push_back(p.link);
    });
    if (names.size() > before) continue;
    std::string known;
    for_each_link([&](const Processor& p) {
      known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", p.letter, p.link);
    });
    return invalid_argument(
        fmt::format("{} is unknown; in a string each letter is a link: {}", quote({&letter, 1}), known));
  }
  return chain_of(names);
}

}  // namespace invar
