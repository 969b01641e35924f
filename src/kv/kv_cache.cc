#include "kv/kv_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace invar {

KvCache::KvCache(PagePool* pool, std::span<const KvPlacement> placements)
    : pool_(pool), placements_(placements), groups_(placements.size()) {
  CHECK(int32_t(placements.size()) == pool->classes());
}

bool KvCache::tail_shared(int32_t group) const {
  const Slot at = slot_of(group, length_);
  return at.slot != 0 && at.page < pages(group) && groups_[group].pages[at.page].shared();
}

int32_t KvCache::pages_to_reserve(int32_t g, int32_t tokens) const {
  const int32_t fresh = placements_[g].pages_for(length_ + tokens) - groups_[g].end();
  return std::max(fresh, 0) + (tail_shared(g) ? 1 : 0);
}

bool KvCache::reserve(int32_t tokens) {
  CHECK(tokens >= 0 && reserved_ == length_);
  if (tokens == 0) return true;
  const int32_t end = length_ + tokens;
  for (int32_t g = 0; g < groups(); ++g)
    if (pages_to_reserve(g, tokens) > pool_->available(g)) return false;
  for (int32_t g = 0; g < groups(); ++g) {
    Group& group = groups_[g];
    if (tail_shared(g)) {
      PageRef& tail = group.pages[slot_of(g, length_).page];
      tail = pool_->take_copy(tail);
    }
    while (group.end() < placements_[g].pages_for(end)) {
      group.pages.push_back(pool_->take(g));
      CHECK(group.pages.back());
    }
  }
  reserved_ = end;
  return true;
}

void KvCache::commit(int32_t tokens) {
  CHECK(tokens >= 0 && length_ + tokens <= reserved_);
  length_ += tokens;
  drop_tail(length_);
}

void KvCache::truncate(int32_t position) {
  CHECK(position >= 0 && position <= length_);
  for (int32_t g = 0; g < groups(); ++g)
    CHECK(placements_[g].first_page(position) >= groups_[g].base);
  length_ = position;
  drop_tail(position);
}

void KvCache::clear() {
  for (Group& group : groups_)
    group = Group();
  length_ = reserved_ = 0;
}

PageRef KvCache::page(int32_t g, int32_t page) const {
  const int32_t at = page - groups_[g].base;
  return at >= 0 && at < pages(g) ? groups_[g].pages[at] : PageRef();
}

void KvCache::replace(int32_t g, int32_t page, PageRef with) {
  CHECK((page + 1) * placements_[g].page_tokens <= length_);
  groups_[g].pages[page - groups_[g].base] = std::move(with);
}

void KvCache::resume(int32_t length, std::vector<std::vector<PageRef>> pages) {
  CHECK(pages.size() == groups_.size());
  for (int32_t g = 0; g < groups(); ++g) {
    const int32_t base = placements_[g].pages_for(length) - int32_t(pages[g].size());
    CHECK(base <= placements_[g].first_page(length));
    groups_[g] = {base, std::move(pages[g])};
  }
  length_ = reserved_ = length;
}

KvCache KvCache::fork() const {
  CHECK(reserved_ == length_);
  return *this;
}

void KvCache::drop_tail(int32_t position) {
  for (int32_t g = 0; g < groups(); ++g) {
    Group& group = groups_[g];
    const int32_t end = std::max(placements_[g].pages_for(position), group.base);
    if (end < group.end()) group.pages.resize(end - group.base);
  }
  reserved_ = position;
}

void KvCache::expire() {
  for (int32_t g = 0; g < groups(); ++g) {
    Group& group = groups_[g];
    const int32_t first = std::min(placements_[g].first_page(length_), group.end());
    if (first <= group.base) continue;
    group.pages.erase(group.pages.begin(), group.pages.begin() + (first - group.base));
    group.base = first;
  }
}

void KvCache::append_runs(int32_t g, int32_t end, std::vector<KvRun>* runs) const {
  CHECK(end <= reserved_);
  const int32_t per_page = placements_[g].page_tokens;
  const Group& group = groups_[g];
  for (int32_t position = group.base * per_page; position < end; position += per_page) {
    const Slot at = slot_of(g, position);
    runs->push_back({group.pages[at.page].data(), position, std::min(per_page, end - position)});
  }
}

}  // namespace invar
