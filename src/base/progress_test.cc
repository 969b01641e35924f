#include "base/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace invar {
namespace {

TEST(Progress, PlainOutputHasAFirstAndALastLineWithTheTotals) {
  ::testing::internal::CaptureStderr();
  {
    Progress progress("packing weights", 2 << 20);
    std::vector<std::thread> workers;
    for (int i = 0; i < 4; ++i) {
      workers.emplace_back([&] {
        for (int k = 0; k < 512; ++k)
          progress.advance(1024);
      });
    }
    for (auto& worker : workers)
      worker.join();
  }
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
  EXPECT_NE(text.find("packing weights: 0% of 2.0 MiB"), std::string::npos) << text;
  EXPECT_NE(text.find("packing weights: 100% of 2.0 MiB"), std::string::npos) << text;
}

TEST(Progress, ItemsOfUnknownTotalAreCounted) {
  ::testing::internal::CaptureStderr();
  {
    Progress("prompts", 0, Progress::Unit::kItems).advance(42);
  }
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("prompts: 42"), std::string::npos);
}

}  // namespace
}  // namespace invar
