#pragma once
// KvCache: where the past of one sequence lies. Owned by its Sequence, engine thread only. Per KV group a
// queue of pages with a base: the tail grows by reserve() and shrinks by truncate(), the head shrinks by
// expire(). Planning reserves, a step writes reserved slots only, commit() is what makes them part of the
// past. A page that someone else holds too is never written: reserve() gives the sequence its own copy first.

#include <cstdint>
#include <span>
#include <vector>

#include "kv/kv_run.h"
#include "kv/page_pool.h"
#include "kv/placement.h"

namespace invar {

class KvCache {
 public:
  // placements: one per group, group g takes pages of size class g. Both outlive the cache.
  KvCache(PagePool* pool, std::span<const KvPlacement> placements);

  int32_t length() const { return length_; }      // committed positions [0, length)
  int32_t reserved() const { return reserved_; }  // writable: [length, reserved)
  int32_t groups() const { return int32_t(groups_.size()); }
  int32_t pages(int32_t group) const { return int32_t(groups_[group].pages.size()); }
  // Whether the next position lies in a page that someone else holds too, so that reserve() takes a copy.
  bool tail_shared(int32_t group) const;
  // Pages that reserve(tokens) takes from the pool.
  int32_t pages_to_reserve(int32_t group, int32_t tokens) const;

  // Makes positions [length, length + tokens) writable in every group, or changes nothing and returns false.
  bool reserve(int32_t tokens);
  // The first `tokens` reserved positions hold what the step wrote; the rest of the reservation is given
  // back.
  void commit(int32_t tokens);
  // Lets go of pages that no later query reads.
  void expire();
  // Forgets positions from `position` on, and every reservation. Windowed groups reach back as far as they
  // keep.
  void truncate(int32_t position);
  // Forgets everything.
  void clear();

  // The group's page number `page` (position / 64); an empty ref where it has expired.
  PageRef page(int32_t group, int32_t page) const;
  // Another page with the same bytes in its place; it must be there and full.
  void replace(int32_t group, int32_t page, PageRef with);
  // Forgets everything and goes on behind [0, length): pages[group] are the last ones that hold it, as many
  // as the placement still needs.
  void resume(int32_t length, std::vector<std::vector<PageRef>> pages);

  // Appends the group's runs over its pages up to `end` <= reserved(): ascending, gapless, the last one cut
  // at end.
  void append_runs(int32_t group, int32_t end, std::vector<KvRun>* runs) const;

  // The same past for another sequence: shares every page. Whoever writes into the common tail first copies
  // it. Nothing may be reserved: both would write the same slots.
  KvCache fork() const;

  KvCache(KvCache&&) noexcept = default;
  KvCache& operator=(KvCache&&) noexcept = default;

 private:
  struct Group {
    int32_t base = 0;  // page number of pages[0]
    std::vector<PageRef> pages;
    int32_t end() const { return base + int32_t(pages.size()); }
  };
  struct Slot {
    int32_t page;  // index into Group::pages
    int32_t slot;  // inside the page
  };
  KvCache(const KvCache&) = default;
  // The only address arithmetic: where an absolute position lies.
  Slot slot_of(int32_t group, int32_t position) const {
    const int32_t per_page = placements_[group].page_tokens;
    return {position / per_page - groups_[group].base, position % per_page};
  }
  void drop_tail(int32_t position);

  PagePool* pool_;
  std::span<const KvPlacement> placements_;
  std::vector<Group> groups_;
  int32_t length_ = 0;
  int32_t reserved_ = 0;
};

}  // namespace invar
