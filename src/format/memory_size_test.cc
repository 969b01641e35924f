#include "format/memory_size.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "format/test_files.h"

namespace invar {
namespace {

TEST(MemorySize, is_bounded_by_the_limit_of_any_control_group) {
  EXPECT_GT(memory_size(), 0u);
  const TemporaryFolder folder;
  const std::string root = folder.path("root");
  const auto write = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  };
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  const uint64_t all = memory_size(root);
  EXPECT_GT(all, 4096u);
  write("/sys/fs/cgroup/a/memory.max", "4096\n");
  EXPECT_EQ(memory_size(root), 4096u);
}

}  // namespace
}  // namespace invar
