// What compile() does when the memory of a step cannot be had.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include "backends/backend.h"
#include "backends/cpu/testing/random_model.h"
#include "base/testing/sanitized.h"

namespace invar {
namespace {

// While it lives the process can map only so much more.
class AddressSpaceLimit {
 public:
  explicit AddressSpaceLimit(size_t more) {
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    getrlimit(RLIMIT_AS, &before_);
    rlimit now = before_;
    now.rlim_cur = pages * size_t(sysconf(_SC_PAGESIZE)) + more;
    EXPECT_EQ(setrlimit(RLIMIT_AS, &now), 0);
  }
  ~AddressSpaceLimit() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

TEST(CompileMemory, shortage_is_an_error_that_names_the_numbers_and_the_flag) {
  if (INVAR_SANITIZED) GTEST_SKIP() << "a sanitizer cannot live under a limit of address space";
  const test::Model model = test::random_model(1);
  const auto backend = make_cpu_backend({.threads = 2}).value();
  {
    const AddressSpaceLimit limit(size_t{256} << 20);
    const auto compiled =
        backend->compile(model.graph, model.weights, {.max_tokens = 8, .max_logit_rows = 1 << 24});
    ASSERT_FALSE(compiled.ok());
    EXPECT_EQ(compiled.status().code(), Code::kResourceExhausted);
    EXPECT_THAT(compiled.status().message(), testing::HasSubstr("8 tokens and 16777216 rows of logits"));
    EXPECT_THAT(compiled.status().message(), testing::HasSubstr("--max-batch"));
  }
  EXPECT_TRUE(backend->compile(model.graph, model.weights, {.max_tokens = 8, .max_logit_rows = 4}).ok());
}

}  // namespace
}  // namespace invar
