#pragma once
// PagePool: all memory of cached keys and values. Owned by the engine, used on the engine thread only. One
// size class per KV group, cut from one reserved buffer: address space is taken at create(), memory when a
// page is first used. A page is handed out zeroed. PageRef owns one reference; the last one returns the page.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kv/codec.h"
#include "tensor/buffer.h"

namespace invar {

class PagePool;

class PageRef {
 public:
  PageRef() = default;
  PageRef(const PageRef& other);
  PageRef(PageRef&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), class_(other.class_), id_(other.id_) {}
  PageRef& operator=(PageRef other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(class_, other.class_);
    std::swap(id_, other.id_);
    return *this;
  }
  ~PageRef();

  explicit operator bool() const { return pool_ != nullptr; }
  std::byte* data() const;
  int32_t id() const { return id_; }
  int32_t size_class() const { return class_; }
  bool shared() const;  // someone else holds this page too: it must not be written
  // Marks the page as one that its holder keeps for others (PrefixCache): with no second holder it is idle.
  void keep(bool kept);

 private:
  friend class PagePool;
  PageRef(PagePool* pool, int32_t size_class, int32_t id) : pool_(pool), class_(size_class), id_(id) {}
  PagePool* pool_ = nullptr;
  int32_t class_ = 0;
  int32_t id_ = 0;
};

class PagePool {
 public:
  struct SizeClass {
    KvLayout layout;  // what a page of this class holds
    int32_t pages = 0;
  };

  static Result<std::unique_ptr<PagePool>> create(std::vector<SizeClass> classes);
  ~PagePool();  // every page must be back
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // A zeroed page, or an empty ref when the class has none left.
  PageRef take(int32_t size_class);
  // A page with the bytes of another one, or an empty ref.
  PageRef take_copy(const PageRef& source);

  int32_t classes() const { return int32_t(classes_.size()); }
  const KvLayout& layout(int32_t size_class) const { return classes_[size_class].layout; }
  int32_t pages(int32_t size_class) const { return classes_[size_class].pages; }
  int32_t used(int32_t size_class) const { return classes_[size_class].used; }
  int32_t available(int32_t size_class) const { return pages(size_class) - used(size_class); }
  int32_t idle(int32_t size_class) const { return classes_[size_class].idle; }  // used, but only kept
  int64_t total_pages() const;
  int64_t total_used() const;
  int64_t total_idle() const;
  size_t bytes() const { return memory_.size(); }

 private:
  friend class PageRef;
  struct Class {
    KvLayout layout;
    int32_t pages = 0;
    size_t page_bytes = 0;
    size_t offset = 0;  // of page 0 in memory_
    int32_t used = 0;
    int32_t idle = 0;
    int32_t untouched = 0;       // pages from here on were never handed out: zero, and not resident
    std::vector<int32_t> free;   // returned pages, the last one goes out first
    std::vector<uint32_t> refs;  // [pages]
    std::vector<bool> kept;      // [pages]
  };
  PagePool() = default;
  PageRef take_raw(int32_t size_class, bool* zeroed);
  std::byte* address(int32_t size_class, int32_t id) {
    const Class& c = classes_[size_class];
    return memory_.data() + c.offset + size_t(id) * c.page_bytes;
  }

  std::vector<Class> classes_;
  Buffer memory_;
};

}  // namespace invar
