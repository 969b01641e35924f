#include "api/prefix_log.h"

#include <utility>

namespace invar::api {

void PrefixLog::add(Entry entry) {
  const std::lock_guard lock(mutex_);
  if (ring_.size() < kEntries) {
    ring_.push_back(std::move(entry));
  } else {
    ring_[std::exchange(next_, (next_ + 1) % kEntries)] = std::move(entry);
  }
}

std::vector<PrefixLog::Entry> PrefixLog::of_tenant(uint64_t tenant) const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> entries;
  for (size_t back = 1; back <= ring_.size(); ++back) {
    const Entry& entry = ring_[(next_ + ring_.size() - back) % ring_.size()];
    if (entry.tenant == tenant) entries.push_back(entry);
  }
  return entries;
}

}  // namespace invar::api
