#pragma once
// What top-p and typical-p share: the tokens at the head of an order, until they hold a mass together.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace invar {

// Sorts `ids` by `before`, piece by piece because most mass usually sits in few tokens, and cuts it behind
// the token with which the sum of mass_of(id), in that order, reaches `mass`. False: it met an id whose place
// in the order is not certain while some tokens are missing from `ids`; the rest is unsorted then.
template <class Before, class MassOf, class Certain>
bool cut_behind_mass(std::vector<int32_t>& ids, double mass, const Before& before, const MassOf& mass_of,
                     const Certain& certain) {
  double held = 0;
  size_t kept = 0;
  for (size_t piece = 256; kept < ids.size(); piece *= 4) {
    const size_t end = std::min(kept + piece, ids.size());
    const auto begin = ids.begin() + ptrdiff_t(kept), middle = ids.begin() + ptrdiff_t(end);
    if (end < ids.size()) std::nth_element(begin, middle, ids.end(), before);
    std::sort(begin, middle, before);
    while (kept < end) {
      const int32_t id = ids[kept++];
      if (!certain(id)) return false;
      held += mass_of(id);
      if (held >= mass) {
        ids.resize(kept);
        return true;
      }
    }
  }
  return false;
}

// Distances below the highest logit up to which tokens are looked at, one after the other; then all.
inline constexpr float kBands[] = {2, 4, 8, 16, 32};
// Between tokens this far apart no rounding changes which one is more probable.
inline constexpr float kBandMargin = 0.0625f;

}  // namespace invar
