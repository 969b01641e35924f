#include "text/byte_matcher.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace invar::text {

ByteMatcher::ByteMatcher(std::span<const std::string_view> patterns) {
  size_t total = 0;
  for (const std::string_view p : patterns) {
    CHECK(!p.empty());
    total += p.size();
    CHECK(total < (1u << 31));
    lengths_.push_back(static_cast<uint32_t>(p.size()));
    longest_ = std::max(longest_, lengths_.back());
  }
  std::vector<uint32_t> order(patterns.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const int compared = patterns[a].compare(patterns[b]);
    return compared != 0 ? compared < 0 : a < b;
  });

  // Every state is a range of the sorted patterns that share its bytes; breadth first.
  struct Range {
    uint32_t begin, end;
  };
  std::vector<Range> ranges{{0, static_cast<uint32_t>(order.size())}};
  std::vector<State> parent{kStart};
  byte_.push_back(0);
  depth_.push_back(0);
  for (State state = 0; state < ranges.size(); ++state) {
    auto [at, end] = ranges[state];
    const uint32_t depth = depth_[state];
    first_child_.push_back(static_cast<uint32_t>(ranges.size()));
    int32_t own = -1;
    for (; at < end && patterns[order[at]].size() == depth; ++at)
      if (own < 0) own = static_cast<int32_t>(order[at]);
    match_.push_back(own);
    while (at < end) {
      const char byte = patterns[order[at]][depth];
      const uint32_t begin = at;
      while (at < end && patterns[order[at]][depth] == byte)
        ++at;
      if (state == kStart) root_[static_cast<uint8_t>(byte)] = static_cast<State>(ranges.size());
      ranges.push_back({begin, at});
      parent.push_back(state);
      byte_.push_back(static_cast<uint8_t>(byte));
      depth_.push_back(depth + 1);
    }
  }
  first_child_.push_back(static_cast<uint32_t>(ranges.size()));

  fail_.assign(ranges.size(), kStart);
  for (State state = 1; state < ranges.size(); ++state) {
    if (parent[state] != kStart) fail_[state] = next(fail_[parent[state]], byte_[state]);
    if (match_[state] < 0) match_[state] = match_[fail_[state]];
  }
}

ByteMatcher::State ByteMatcher::child(State state, uint8_t byte) const {
  if (state == kStart) return root_[byte] == kStart ? kNone : root_[byte];
  const auto begin = byte_.begin() + first_child_[state], end = byte_.begin() + first_child_[state + 1];
  const auto found = std::lower_bound(begin, end, byte);
  return found != end && *found == byte ? static_cast<State>(found - byte_.begin()) : kNone;
}

ByteMatcher::State ByteMatcher::next(State state, uint8_t byte) const {
  while (state != kStart) {
    const State deeper = child(state, byte);
    if (deeper != kNone) return deeper;
    state = fail_[state];
  }
  return root_[byte];
}

}  // namespace invar::text
