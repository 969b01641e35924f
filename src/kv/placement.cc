#include "kv/placement.h"

#include <algorithm>

namespace invar {

int32_t KvPlacement::peak_pages(int32_t end, int32_t step) const {
  const int32_t all = pages_for(end);
  if (keep == 0) return all;
  // The kept positions and the step's, wherever they fall inside their first and last page.
  return std::min(all, pages_for(keep) + pages_for(step) + 1);
}

}  // namespace invar
