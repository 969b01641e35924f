#include "kv/page_pool.h"

#include <gtest/gtest.h>

#include <cstring>

namespace invar {
namespace {

PagePool::SizeClass size_class(int layers, int pages) {
  return {{find_kv_codec("f32"), layers, 1, 16}, pages};
}

std::unique_ptr<PagePool> make_pool(std::vector<PagePool::SizeClass> classes) {
  auto pool = PagePool::create(std::move(classes));
  EXPECT_TRUE(pool.ok());
  return std::move(*pool);
}

bool all_bytes(const PageRef& page, size_t bytes, std::byte value) {
  for (size_t i = 0; i < bytes; ++i)
    if (page.data()[i] != value) return false;
  return true;
}

TEST(PagePool, recycled_page_is_zeroed) {
  auto pool = make_pool({size_class(1, 1)});
  const size_t bytes = pool->layout(0).page_bytes();
  {
    PageRef page = pool->take(0);
    EXPECT_TRUE(all_bytes(page, bytes, std::byte{0}));
    std::memset(page.data(), 0xAB, bytes);
  }
  PageRef again = pool->take(0);
  EXPECT_TRUE(all_bytes(again, bytes, std::byte{0}));
}

TEST(PagePool, last_reference_returns_the_page) {
  auto pool = make_pool({size_class(1, 2)});
  PageRef a = pool->take(0);
  EXPECT_FALSE(a.shared());
  PageRef b = a;
  EXPECT_TRUE(a.shared());
  EXPECT_EQ(pool->used(0), 1);
  a = PageRef();
  EXPECT_FALSE(b.shared());
  EXPECT_EQ(pool->used(0), 1);
  PageRef c = std::move(b);
  EXPECT_EQ(pool->used(0), 1);
  c = PageRef();
  EXPECT_EQ(pool->used(0), 0);
}

TEST(PagePool, classes_count_apart_and_never_overlap) {
  auto pool = make_pool({size_class(1, 3), size_class(2, 2)});
  const size_t small = pool->layout(0).page_bytes(), large = pool->layout(1).page_bytes();
  EXPECT_EQ(large, 2 * small);
  EXPECT_EQ(pool->bytes(), 3 * small + 2 * large);
  std::vector<PageRef> pages;
  for (int i = 0; i < 5; ++i) {
    const int size_class = i < 3 ? 0 : 1;
    pages.push_back(pool->take(size_class));
    ASSERT_TRUE(bool(pages.back()));
    std::memset(pages.back().data(), i + 1, pool->layout(size_class).page_bytes());
  }
  EXPECT_FALSE(bool(pool->take(0)));
  EXPECT_FALSE(bool(pool->take(1)));
  EXPECT_EQ(pool->total_used(), pool->total_pages());
  for (int i = 0; i < 5; ++i)
    EXPECT_TRUE(all_bytes(pages[i], pool->layout(i < 3 ? 0 : 1).page_bytes(), std::byte(i + 1)));
  pages.clear();
  EXPECT_EQ(pool->total_used(), 0);
}

TEST(PagePool, copy_has_the_bytes_of_its_source) {
  auto pool = make_pool({size_class(1, 2)});
  PageRef a = pool->take(0);
  std::memset(a.data(), 7, pool->layout(0).page_bytes());
  PageRef b = pool->take_copy(a);
  EXPECT_NE(a.data(), b.data());
  EXPECT_TRUE(all_bytes(b, pool->layout(0).page_bytes(), std::byte{7}));
  EXPECT_FALSE(bool(pool->take_copy(a)));
}

TEST(PagePool, impossible_size_is_an_error_not_an_abort) {
  auto pool = PagePool::create({{{find_kv_codec("f32"), 1 << 20, 1 << 10, 256}, 1 << 30}});
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.status().code(), Code::kResourceExhausted);
  EXPECT_NE(pool.status().message().find("--memory"), std::string::npos);
}

}  // namespace
}  // namespace invar
