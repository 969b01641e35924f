#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <random>

namespace invar {
namespace {

constexpr int32_t kWindow = 100;

// A pool of one full and one windowed group; every slot holds one number that a test writes and reads back.
class KvCacheTest : public testing::Test {
 protected:
  void make(int32_t pages) {
    auto created = PagePool::create(
        {{{find_kv_codec("f32"), 1, 1, 16}, pages}, {{find_kv_codec("f16"), 2, 1, 32}, pages}});
    ASSERT_TRUE(created.ok());
    pool_ = std::move(*created);
  }
  KvCache cache() { return KvCache(pool_.get(), placements_); }

  static uint64_t* slot(const KvRun& run, int32_t position) {
    return reinterpret_cast<uint64_t*>(run.page) + position % kPageTokens;
  }
  // Writes what a step would: `value(position)` at [from, to) in every group, unwritten slots must be zero.
  template <class F>
  static void write(const KvCache& cache, int32_t from, int32_t to, F value) {
    for (int32_t g = 0; g < cache.groups(); ++g) {
      std::vector<KvRun> runs;
      cache.append_runs(g, to, &runs);
      for (const KvRun& run : runs)
        for (int32_t p = std::max(from, run.first_position); p < run.first_position + run.length; ++p)
          *slot(run, p) = value(p) + uint64_t(g);
    }
  }
  static std::vector<uint64_t> read(const KvCache& cache, int32_t group, int32_t* first) {
    std::vector<KvRun> runs;
    cache.append_runs(group, cache.length(), &runs);
    std::vector<uint64_t> values;
    *first = runs.empty() ? cache.length() : runs[0].first_position;
    int32_t next = *first;
    for (const KvRun& run : runs) {
      EXPECT_EQ(run.first_position, next);
      EXPECT_EQ(run.first_position % kPageTokens, 0);
      for (int32_t p = next; p < next + run.length; ++p)
        values.push_back(*slot(run, p));
      next += run.length;
    }
    EXPECT_EQ(next, cache.length());
    return values;
  }

  const std::vector<KvPlacement> placements_ = {{kPageTokens, 0}, {kPageTokens, kWindow}};
  std::unique_ptr<PagePool> pool_;
};

TEST_F(KvCacheTest, reserve_takes_all_or_nothing_in_every_group) {
  make(3);
  KvCache a = cache(), b = cache();
  ASSERT_TRUE(a.reserve(2 * kPageTokens));
  EXPECT_EQ(pool_->used(0), 2);
  EXPECT_EQ(pool_->used(1), 2);
  EXPECT_FALSE(b.reserve(kPageTokens + 1));
  EXPECT_EQ(b.reserved(), 0);
  EXPECT_EQ(pool_->total_used(), 4);
  EXPECT_TRUE(b.reserve(kPageTokens));
  EXPECT_EQ(pool_->available(0), 0);
}

TEST_F(KvCacheTest, commit_gives_back_what_was_reserved_and_not_used) {
  make(4);
  KvCache a = cache();
  ASSERT_TRUE(a.reserve(3 * kPageTokens));
  a.commit(1);
  EXPECT_EQ(a.length(), 1);
  EXPECT_EQ(a.reserved(), 1);
  EXPECT_EQ(pool_->used(0), 1);
  ASSERT_TRUE(a.reserve(kPageTokens));
  a.truncate(a.length());  // a failed step
  EXPECT_EQ(a.reserved(), 1);
  EXPECT_EQ(pool_->used(0), 1);
}

TEST_F(KvCacheTest, window_keeps_exactly_the_pages_that_a_query_can_read) {
  make(64);
  KvCache a = cache();
  for (int32_t n = 1; n <= 1000; ++n) {
    ASSERT_TRUE(a.reserve(1));
    a.commit(1);
    a.expire();
    const int32_t oldest_read = std::max(0, n - kWindow + 1);  // by the query at position n
    const int32_t pages = (n + kPageTokens - 1) / kPageTokens - oldest_read / kPageTokens;
    ASSERT_EQ(a.pages(1), pages) << n;
    ASSERT_LE(a.pages(1), placements_[1].peak_pages(1000, 1));
    ASSERT_EQ(a.pages(0), (n + kPageTokens - 1) / kPageTokens);
  }
}

TEST_F(KvCacheTest, fork_shares_pages_and_copies_the_tail_that_is_written) {
  make(16);
  KvCache a = cache();
  ASSERT_TRUE(a.reserve(100));
  write(a, 0, 100, [](int32_t p) { return uint64_t(p) * 1000; });
  a.commit(100);
  KvCache b = a.fork();
  EXPECT_EQ(pool_->used(0), 2);
  ASSERT_TRUE(b.reserve(10));
  EXPECT_EQ(pool_->used(0), 3) << "the common tail was copied";
  ASSERT_TRUE(a.reserve(10));
  EXPECT_EQ(pool_->used(0), 3) << "its first owner is alone with it again";
  write(a, 100, 110, [](int32_t p) { return uint64_t(p) * 7; });
  write(b, 100, 110, [](int32_t p) { return uint64_t(p) * 9; });
  a.commit(10);
  b.commit(10);
  int32_t first = 0;
  const auto of_a = read(a, 0, &first), of_b = read(b, 0, &first);
  for (int32_t p = 0; p < 110; ++p) {
    EXPECT_EQ(of_a[p], uint64_t(p) * (p < 100 ? 1000 : 7));
    EXPECT_EQ(of_b[p], uint64_t(p) * (p < 100 ? 1000 : 9));
  }
}

TEST_F(KvCacheTest, truncate_into_a_shared_page_leaves_the_other_owner_alone) {
  make(16);
  KvCache a = cache();
  ASSERT_TRUE(a.reserve(128));
  write(a, 0, 128, [](int32_t p) { return uint64_t(p) + 5; });
  a.commit(128);
  KvCache b = a.fork();
  b.truncate(70);
  ASSERT_TRUE(b.reserve(30));
  write(b, 70, 100, [](int32_t) { return uint64_t(1); });
  b.commit(30);
  int32_t first = 0;
  const auto of_a = read(a, 0, &first);
  for (int32_t p = 0; p < 128; ++p)
    EXPECT_EQ(of_a[p], uint64_t(p) + 5);
}

TEST_F(KvCacheTest, fork_with_an_open_reservation_is_a_programmer_error) {
  make(4);
  KvCache a = cache();
  ASSERT_TRUE(a.reserve(10));
  EXPECT_DEATH(a.fork(), "check failed");
  a.commit(4);
  EXPECT_EQ(a.fork().length(), 4);
}

TEST_F(KvCacheTest, reserve_counts_the_tail_copy_among_its_pages) {
  make(2);
  KvCache a = cache();
  ASSERT_TRUE(a.reserve(10));
  a.commit(10);
  KvCache b = a.fork();
  KvCache c = cache();
  ASSERT_TRUE(c.reserve(1));
  EXPECT_FALSE(b.reserve(1)) << "no page left for the copy";
  c.clear();
  EXPECT_TRUE(b.reserve(1));
}

// Random operations on many caches against plain vectors of what each position holds.
TEST_F(KvCacheTest, behaves_like_a_vector_under_random_operations) {
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    make(40);
    std::mt19937 random(seed);
    const auto below = [&](int n) { return int32_t(random() % uint32_t(n)); };
    struct Model {
      KvCache cache;
      std::vector<uint64_t> values;
    };
    std::vector<Model> all;
    uint64_t stamp = 1;
    for (int op = 0; op < 400; ++op) {
      if (all.empty() || (all.size() < 6 && below(10) == 0)) all.push_back({cache(), {}});
      const size_t at = size_t(below(int(all.size())));
      Model& m = all[at];
      switch (below(8)) {
        case 0:
          if (all.size() < 6) {
            KvCache copy = m.cache.fork();
            std::vector<uint64_t> values = m.values;
            all.push_back({std::move(copy), std::move(values)});
          }
          break;
        case 1:  // as far back as the window group can answer
          if (const int32_t n = m.cache.length(); n > 0) {
            const int32_t position = n - below(std::min(n, 30) + 1);
            if (placements_[1].first_page(position) >= placements_[1].first_page(n)) {
              m.cache.truncate(position);
              m.values.resize(size_t(position));
            }
          }
          break;
        case 2:
          if (below(4) == 0) all.erase(all.begin() + long(at));
          break;
        default: {
          const int32_t n = 1 + below(90), used_before = int32_t(pool_->total_used());
          if (!m.cache.reserve(n)) {
            ASSERT_EQ(pool_->total_used(), used_before);
            break;
          }
          const int32_t from = m.cache.length(), kept = below(n + 1);
          const uint64_t base = stamp += 1000;
          write(m.cache, from, from + n, [&](int32_t p) { return base + uint64_t(p - from) * 2; });
          m.cache.commit(kept);
          m.cache.expire();
          for (int32_t i = 0; i < kept; ++i)
            m.values.push_back(base + uint64_t(i) * 2);
        }
      }
      for (const Model& each : all) {
        ASSERT_EQ(each.cache.length(), int32_t(each.values.size()));
        for (int32_t g = 0; g < 2; ++g) {
          int32_t first = 0;
          const auto got = read(each.cache, g, &first);
          ASSERT_LE(first, std::max(0, each.cache.length() - kWindow + 1));
          for (size_t i = 0; i < got.size(); ++i)
            ASSERT_EQ(got[i], each.values[size_t(first) + i] + uint64_t(g));
        }
      }
    }
    all.clear();
    ASSERT_EQ(pool_->total_used(), 0);
  }
}

}  // namespace
}  // namespace invar
