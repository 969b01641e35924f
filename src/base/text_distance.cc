#include "base/text_distance.h"

#include <algorithm>
#include <vector>

namespace invar {

int text_distance(std::string_view a, std::string_view b) {
  // Three rows of the edit table: two back (for swaps), one back, current.
  std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j)
    last[j] = int(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = int(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string nearest_text(std::string_view text, std::span<const std::string> candidates) {
  if (text.size() > 64) return "";
  std::string best;
  int best_distance = std::max(1, int(text.size()) / 3) + 1;
  for (const std::string& candidate : candidates) {
    const int distance = text_distance(text, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace invar
