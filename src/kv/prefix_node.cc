#include "kv/prefix_node.h"

#include <algorithm>

namespace invar {

int32_t common_tokens(std::span<const int32_t> a, std::span<const int32_t> b) {
  const size_t n = std::min(a.size(), b.size());
  return int32_t(std::mismatch(a.begin(), a.begin() + ptrdiff_t(n), b.begin()).first - a.begin());
}

PrefixNode::Nearest PrefixNode::nearest_child(std::span<const int32_t> rest) const {
  rest = rest.first(std::min(rest.size(), size_t(kPageTokens)));
  // In a sorted list the longest common beginning is that of a neighbour of the place where `rest` belongs.
  const auto at = std::lower_bound(children.begin(), children.end(), rest,
                                   [](const std::unique_ptr<PrefixNode>& child, std::span<const int32_t> t) {
                                     return std::lexicographical_compare(
                                         child->tokens.begin(), child->tokens.end(), t.begin(), t.end());
                                   });
  Nearest nearest;
  const auto consider = [&](const std::unique_ptr<PrefixNode>& child) {
    const int32_t common = common_tokens(child->tokens, rest);
    if (common > nearest.common) nearest = {child.get(), common};
  };
  if (at != children.end()) consider(*at);
  if (at != children.begin()) consider(*std::prev(at));
  return nearest;
}

}  // namespace invar
