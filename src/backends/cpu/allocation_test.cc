// run() allocates nothing: counted by replacing operator new in this test program. Sanitizers replace it
// themselves, so their builds go without this test.
#include "base/testing/sanitized.h"
#if !INVAR_SANITIZED

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "backends/cpu/testing/random_model.h"

static std::atomic<int64_t> allocations{0};

void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}

namespace invar {
namespace {

TEST(Executor, allocates_nothing_in_a_step) {
  for (uint32_t seed = 1; seed < 6; seed++) {
    const test::Model model = test::random_model(seed);
    const auto backend = make_cpu_backend({.threads = 2}).value();
    const auto executable =
        backend->compile(model.graph, model.weights, {.max_tokens = 400, .max_logit_rows = 9}).value();
    test::Pages pages(model), other(model);
    const std::vector<int32_t> tokens(400, 3), logit_rows = {0, 5, 399};
    const std::vector<SequenceRows> sequences = {{0, 399, 0, pages.reserve(399)},
                                                 {399, 1, 0, other.reserve(1)}};
    const int64_t before = allocations.load();
    executable->run({tokens, sequences, logit_rows});
    EXPECT_EQ(allocations.load(), before) << "seed " << seed;
  }
}

}  // namespace
}  // namespace invar

#endif
