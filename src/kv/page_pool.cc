#include "kv/page_pool.h"

#include <fmt/format.h>

#include <cstring>

#include "base/check.h"

namespace invar {

PageRef::PageRef(const PageRef& other) : pool_(other.pool_), class_(other.class_), id_(other.id_) {
  if (pool_ == nullptr) return;
  PagePool::Class& c = pool_->classes_[class_];
  if (++c.refs[id_] == 2 && c.kept[id_]) --c.idle;
}

PageRef::~PageRef() {
  if (pool_ == nullptr) return;
  PagePool::Class& c = pool_->classes_[class_];
  CHECK(c.refs[id_] > 0);
  if (--c.refs[id_] > 0) {
    if (c.refs[id_] == 1 && c.kept[id_]) ++c.idle;
    return;
  }
  CHECK(!c.kept[id_]);
  c.free.push_back(id_);
  --c.used;
}

std::byte* PageRef::data() const {
  return pool_->address(class_, id_);
}

bool PageRef::shared() const {
  return pool_->classes_[class_].refs[id_] > 1;
}

void PageRef::keep(bool kept) {
  PagePool::Class& c = pool_->classes_[class_];
  CHECK(c.kept[id_] != kept);
  c.kept[id_] = kept;
  if (c.refs[id_] == 1) c.idle += kept ? 1 : -1;
}

Result<std::unique_ptr<PagePool>> PagePool::create(std::vector<SizeClass> classes) {
  auto pool = std::unique_ptr<PagePool>(new PagePool);
  size_t total = 0;
  for (const SizeClass& given : classes) {
    CHECK(given.pages >= 0 && given.layout.codec != nullptr);
    Class c;
    c.layout = given.layout;
    c.pages = given.pages;
    c.page_bytes = given.layout.page_bytes();
    c.offset = total;
    size_t bytes = 0;
    if (__builtin_mul_overflow(size_t(given.pages), c.page_bytes, &bytes) ||
        __builtin_add_overflow(total, bytes, &total)) {
      return resource_exhausted(
          fmt::format("KV pool of {} pages is beyond the address space; lower --memory", given.pages));
    }
    pool->classes_.push_back(std::move(c));
  }
  Result<Buffer> memory = Buffer::allocate(total);
  if (!memory.ok()) return memory.status().with_context("KV pool (--memory)");
  pool->memory_ = std::move(*memory);
  for (Class& c : pool->classes_) {
    c.free.reserve(c.pages);
    c.refs.assign(c.pages, 0);
    c.kept.assign(c.pages, false);
  }
  return pool;
}

PagePool::~PagePool() {
  CHECK(total_used() == 0);
}

PageRef PagePool::take_raw(int32_t size_class, bool* zeroed) {
  Class& c = classes_[size_class];
  int32_t id = 0;
  *zeroed = c.free.empty();
  if (!c.free.empty()) {
    id = c.free.back();
    c.free.pop_back();
  } else if (c.untouched < c.pages) {
    id = c.untouched++;
  } else {
    return {};
  }
  c.refs[id] = 1;
  ++c.used;
  return PageRef(this, size_class, id);
}

PageRef PagePool::take(int32_t size_class) {
  bool zeroed = false;
  PageRef page = take_raw(size_class, &zeroed);
  if (page && !zeroed) std::memset(page.data(), 0, classes_[size_class].page_bytes);
  return page;
}

PageRef PagePool::take_copy(const PageRef& source) {
  bool zeroed = false;
  PageRef page = take_raw(source.size_class(), &zeroed);
  if (page) std::memcpy(page.data(), source.data(), classes_[source.size_class()].page_bytes);
  return page;
}

int64_t PagePool::total_pages() const {
  int64_t n = 0;
  for (const Class& c : classes_)
    n += c.pages;
  return n;
}

int64_t PagePool::total_used() const {
  int64_t n = 0;
  for (const Class& c : classes_)
    n += c.used;
  return n;
}

int64_t PagePool::total_idle() const {
  int64_t n = 0;
  for (const Class& c : classes_)
    n += c.idle;
  return n;
}

}  // namespace invar
