#include "kv/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "base/hash.h"
#include "base/testing/reduced.h"

namespace invar {
namespace {

constexpr int32_t kWindow = 100;

// A sequence as the engine has them, with a full and a windowed group. What a model would leave in a slot is
// a function of all tokens up to it.
struct Walker {
  Walker(PrefixCache* cache, PagePool* pool, std::span<const KvPlacement> placements, uint64_t salt)
      : path(cache, {0, salt}), pages(pool, placements) {
    tokens.reserve(2000);  // others look at them
  }
  PrefixPath path;
  std::vector<int32_t> tokens;
  std::vector<uint64_t> values;  // of tokens, by position
  KvCache pages;

  void append(int32_t token) {
    const uint64_t before = values.empty() ? 7 : values.back();
    tokens.push_back(token);
    values.push_back(hash64(std::as_bytes(std::span(&tokens.back(), 1)), before));
  }
};

class PrefixCacheTest : public testing::Test {
 protected:
  void make(int32_t pages, uint64_t max_bytes = uint64_t{1} << 40) { make(pages, pages, max_bytes); }
  void make(int32_t pages, int32_t window_pages, uint64_t max_bytes) {
    cache_.reset();
    auto created = PagePool::create(
        {{{find_kv_codec("f32"), 1, 1, 16}, pages}, {{find_kv_codec("f16"), 2, 1, 32}, window_pages}});
    ASSERT_TRUE(created.ok());
    pool_ = std::move(*created);
    cache_ = std::make_unique<PrefixCache>(pool_.get(), placements_, max_bytes);
  }
  std::unique_ptr<Walker> walker(std::vector<int32_t> tokens, uint64_t salt = 0) {
    auto w = std::make_unique<Walker>(cache_.get(), pool_.get(), placements_, salt);
    for (const int32_t t : tokens)
      w->append(t);
    return w;
  }
  // Computes up to `end` of its tokens as a step would; false if there are no pages.
  bool compute(Walker& w, int32_t end) {
    const int32_t from = w.pages.length(), n = end - from;
    for (int32_t g = 0; g < 2; ++g)
      if (!cache_->make_room(g, w.pages.pages_to_reserve(g, n))) return false;
    if (!w.pages.reserve(n)) return false;
    for (int32_t g = 0; g < 2; ++g)
      each_slot(w, g, end, [&](uint64_t* slot, int32_t p) {
        if (p >= from) *slot = w.values[size_t(p)];
      });
    w.pages.commit(n);
    w.path.publish(w.tokens, w.pages);
    w.pages.expire();
    return true;
  }
  template <class F>
  static void each_slot(const Walker& w, int32_t g, int32_t end, F f) {
    std::vector<KvRun> runs;
    w.pages.append_runs(g, end, &runs);
    for (const KvRun& run : runs)
      for (int32_t p = run.first_position; p < run.first_position + run.length; ++p)
        f(reinterpret_cast<uint64_t*>(run.page) + p % kPageTokens, p);
  }
  // Every position that a later query reads holds what the sequence's own tokens put there.
  static void expect_own(const Walker& w) {
    for (int32_t g = 0; g < 2; ++g) {
      int32_t next = g == 0 ? 0 : std::max(0, w.pages.length() - kWindow + 1);
      each_slot(w, g, w.pages.length(), [&](const uint64_t* slot, int32_t p) {
        if (p != next) return;
        ++next;
        ASSERT_EQ(*slot, w.values[size_t(p)]) << "group " << g << " position " << p;
      });
      ASSERT_EQ(next, w.pages.length()) << "group " << g;
    }
  }
  struct Match {
    int32_t tokens;
    PrefixEnd end;
  };
  static Match match(Walker& w, int32_t limit) {
    const PrefixEnd end = w.path.match(w.tokens, limit, true, w.pages).end;
    return {w.pages.length(), end};
  }
  static Match match(Walker& w) { return match(w, int32_t(w.tokens.size()) - 1); }
  static void end(std::unique_ptr<Walker> w) { w->path.keep_tail(w->tokens, w->pages); }

  static std::vector<int32_t> numbers(int32_t n, int32_t first = 0) {
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < n; ++i)
      tokens.push_back(first + i);
    return tokens;
  }

  const std::vector<KvPlacement> placements_ = {{kPageTokens, 0}, {kPageTokens, kWindow}};
  std::unique_ptr<PagePool> pool_;
  std::unique_ptr<PrefixCache> cache_;  // before the pool
};

TEST_F(PrefixCacheTest, finds_full_pages_and_copies_the_last_partial_one) {
  make(100);
  auto first = walker(numbers(200));
  EXPECT_EQ(match(*first).end, PrefixEnd::kNew);
  ASSERT_TRUE(compute(*first, 200));
  end(std::move(first));
  EXPECT_EQ(pool_->total_used(), pool_->total_idle());

  auto same = walker(numbers(200));
  const Match found = match(*same);
  EXPECT_EQ(found.tokens, 199);  // the last one is to be computed
  EXPECT_EQ(found.end, PrefixEnd::kComplete);
  EXPECT_EQ(pool_->used(0), 5);  // three full pages are shared, the tail is a copy
  expect_own(*same);
  ASSERT_TRUE(compute(*same, 200));
  expect_own(*same);
}

TEST_F(PrefixCacheTest, says_where_and_why_a_prompt_parts) {
  make(100);
  auto first = walker(numbers(200));
  ASSERT_TRUE(compute(*first, 200));
  end(std::move(first));

  auto tokens = numbers(200);
  tokens[150] = 9999;
  auto other = walker(tokens);
  Match found = match(*other);
  EXPECT_EQ(found.tokens, 150);
  EXPECT_EQ(found.end, PrefixEnd::kDiffers);
  expect_own(*other);

  auto salted = walker(numbers(200), 5);
  found = match(*salted);
  EXPECT_EQ(found.tokens, 0);
  EXPECT_EQ(found.end, PrefixEnd::kOtherSalt);

  auto fresh = walker(numbers(200, 1000));
  EXPECT_EQ(match(*fresh).end, PrefixEnd::kNew);

  other.reset();
  cache_->clear();
  auto again = walker(numbers(200));
  EXPECT_EQ(match(*again).end, PrefixEnd::kEvicted);
}

TEST_F(PrefixCacheTest, copies_from_a_sequence_that_is_still_running) {
  make(100);
  auto running = walker(numbers(200));
  ASSERT_TRUE(compute(*running, 100));
  auto second = walker(numbers(200));
  EXPECT_EQ(match(*second).tokens, 100);
  expect_own(*second);
  ASSERT_TRUE(compute(*running, 200));  // writes behind what was copied, into its own page
  expect_own(*second);
  EXPECT_EQ(match(*second).tokens, 199);
  expect_own(*second);
}

TEST_F(PrefixCacheTest, equal_pages_computed_twice_become_one) {
  make(100);
  auto a = walker(numbers(128)), b = walker(numbers(128));
  ASSERT_TRUE(compute(*a, 60) && compute(*b, 50));
  ASSERT_TRUE(compute(*a, 128) && compute(*b, 128));
  EXPECT_EQ(pool_->used(0), 2);
  expect_own(*b);
}

TEST_F(PrefixCacheTest, off_keeps_nothing) {
  make(100, 0);
  auto a = walker(numbers(200));
  EXPECT_EQ(match(*a).end, PrefixEnd::kOff);
  ASSERT_TRUE(compute(*a, 200));
  end(std::move(a));
  EXPECT_EQ(pool_->total_used(), 0);
}

TEST_F(PrefixCacheTest, idle_pages_stay_within_their_bound_and_the_oldest_go_first) {
  make(100);
  const uint64_t page = pool_->layout(0).page_bytes() + pool_->layout(1).page_bytes();
  make(100, 4 * page);
  for (int32_t i = 0; i < 4; ++i) {
    auto w = walker(numbers(128, 1000 * i));
    ASSERT_TRUE(compute(*w, 128));
    w.reset();
    EXPECT_LE(cache_->idle_bytes(), 4 * page);
  }
  auto newest = walker(numbers(128, 3000)), oldest = walker(numbers(128, 0));
  EXPECT_EQ(match(*newest).tokens, 127);
  EXPECT_EQ(match(*oldest).end, PrefixEnd::kEvicted);
  newest.reset();
  auto ends = walker(numbers(150, 5000));
  ASSERT_TRUE(compute(*ends, 150));
  end(std::move(ends));
  EXPECT_LE(cache_->idle_bytes(), 4 * page);
}

TEST_F(PrefixCacheTest, a_window_is_enough_to_go_on) {
  make(100);
  auto a = walker(numbers(640));
  ASSERT_TRUE(compute(*a, 640));
  a.reset();
  for (const int32_t n : {99, 100, 101, 127, 128, 129, 300, 639}) {
    auto b = walker(numbers(640));
    EXPECT_EQ(match(*b, n).tokens, n);
    expect_own(*b);
    ASSERT_TRUE(compute(*b, 640));
    expect_own(*b);
  }
}

TEST_F(PrefixCacheTest, one_that_finds_no_room_stands_where_its_pages_end) {
  make(5);
  auto a = walker(numbers(300));
  ASSERT_TRUE(compute(*a, 300));
  ASSERT_TRUE(cache_->make_room(1, 3));  // pages that left the window go
  auto b = walker(numbers(300));
  EXPECT_LT(match(*b).tokens, 256);
  EXPECT_LE(b->path.node()->end(), b->pages.length());
  end(std::move(b));
}

TEST_F(PrefixCacheTest, full_pages_alone_need_no_copy) {
  make(100);
  auto a = walker(numbers(150));
  ASSERT_TRUE(compute(*a, 150));
  auto b = walker(numbers(150));
  const int64_t used = pool_->total_used();
  b->path.match(b->tokens, 140, false, b->pages);
  EXPECT_EQ(b->pages.length(), 128);
  EXPECT_EQ(pool_->total_used(), used);
}

TEST_F(PrefixCacheTest, pages_that_left_a_window_count_for_the_bound_while_their_sequence_runs) {
  make(100);
  const uint64_t window_page = pool_->layout(1).page_bytes();
  make(100, 4 * window_page);
  auto other = walker(numbers(128, 5000));
  ASSERT_TRUE(compute(*other, 128));
  other.reset();
  auto w = walker(numbers(1280));
  for (int32_t end = 64; end <= 1280; end += 64) {
    ASSERT_TRUE(compute(*w, end));
    w->path.publish(w->tokens, w->pages);
    EXPECT_LE(cache_->idle_bytes(), 4 * window_page) << end;
  }
}

TEST_F(PrefixCacheTest, an_end_that_became_a_beginning_is_no_eviction) {
  make(100);
  auto a = walker(numbers(100));
  ASSERT_TRUE(compute(*a, 100));
  end(std::move(a));
  auto b = walker(numbers(200));
  EXPECT_EQ(match(*b).tokens, 100);
  ASSERT_TRUE(compute(*b, 200));
  EXPECT_EQ(cache_->evictions(), 0);
}

// Any interleaving of sequences, with too few pages: whoever finds something finds its own past.
TEST_F(PrefixCacheTest, model_based_random_operations) {
  const int64_t operations = reduced_tests() ? 100'000 : 1'000'000;
  const uint64_t seed = 20261130;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return int32_t(random() % n); };
  make(40, 20, uint64_t{1} << 40);  // windows run short first
  // Prompts from a few stems, so that prefixes overlap.
  const auto prompt = [&] {
    std::vector<int32_t> tokens;
    const int32_t stem = below(3), shared = below(400), own = 1 + below(100);
    for (int32_t i = 0; i < shared; ++i)
      tokens.push_back(stem * 1000 + i / 2);
    for (int32_t i = 0; i < own; ++i)
      tokens.push_back(below(3));
    return tokens;
  };
  std::vector<std::unique_ptr<Walker>> live;
  int64_t hits = 0, forks = 0, starved = 0, expired = 0, no_room = 0;
  for (int64_t op = 0; op < operations; ++op) {
    const int32_t what = below(100);
    if (live.size() < 8 && (what < 10 || live.empty())) {
      live.push_back(walker(prompt(), uint64_t(below(2))));
      continue;
    }
    std::unique_ptr<Walker>& w = live[size_t(below(live.size()))];
    const int32_t known = int32_t(w->tokens.size());
    if (what < 30) {
      const int32_t before = w->pages.length();
      const Match found = match(*w);
      ASSERT_LE(found.tokens, std::max(before, known - 1));
      hits += found.tokens > before;
      expired += found.end == PrefixEnd::kExpired;
      no_room += found.end == PrefixEnd::kNoRoom;
      if (found.tokens > before) expect_own(*w);
    } else if (what < 75) {
      if (known < 900 && w->pages.length() == known) w->append(below(3));
      const int32_t left = int32_t(w->tokens.size()) - w->pages.length();
      starved += left > 0 && !compute(*w, w->pages.length() + 1 + below(uint64_t(left)));
    } else if (what < 80) {
      w->pages.clear();  // preempted
      w->path.leave();
    } else if (what < 85 && live.size() < 8) {
      auto fork = walker(w->tokens, 0);
      fork->pages = w->pages.fork();
      fork->path.follow(w->path, fork->tokens, fork->pages);
      live.push_back(std::move(fork));
      ++forks;
    } else if (what < 90) {
      std::swap(w, live.back());
      if (below(2) == 0) {
        end(std::move(live.back()));
      }
      live.pop_back();
    } else {
      expect_own(*w);
    }
    if (HasFatalFailure()) return;
    ASSERT_LE(pool_->total_idle(), pool_->total_used());
  }
  for (auto& w : live)
    w.reset();
  EXPECT_EQ(pool_->total_used(), pool_->total_idle());
  cache_->clear();
  EXPECT_EQ(pool_->total_used(), 0);
  EXPECT_EQ(cache_->nodes(), 0);
  EXPECT_GT(hits, operations / 1000);
  EXPECT_GT(forks, 0);
  EXPECT_GT(starved, 0);
  EXPECT_GT(expired, 0);
  EXPECT_GT(no_room, 0);
  EXPECT_GT(cache_->evictions(), 1000);
}

}  // namespace
}  // namespace invar
