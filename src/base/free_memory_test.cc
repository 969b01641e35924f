#include "base/free_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace invar {
namespace {

class FreeMemory : public testing::Test {
 protected:
  void SetUp() override {
    root_ =
        testing::TempDir() + "invar_memory_" + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
    write("/proc/meminfo", "MemTotal: 2000 kB\nMemFree: 10 kB\nMemAvailable: 1000 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  uint64_t free() { return free_memory_bytes(root_); }
  std::string root_;
};

TEST_F(FreeMemory, is_what_the_machine_has_where_no_group_binds) {
  EXPECT_EQ(free(), 1000u * 1024);
  write("/proc/self/cgroup", "0::/a\n");
  write("/sys/fs/cgroup/a/memory.max", "max\n");
  write("/sys/fs/cgroup/a/memory.current", "5\n");
  EXPECT_EQ(free(), 1000u * 1024);
}

TEST_F(FreeMemory, tightest_group_on_the_way_up_binds) {
  write("/proc/self/cgroup", "0::/a/b/c\n");
  write("/sys/fs/cgroup/a/memory.max", "500000\n");
  write("/sys/fs/cgroup/a/memory.current", "450000\n");
  write("/sys/fs/cgroup/a/b/memory.max", "100000\n");
  write("/sys/fs/cgroup/a/b/memory.current", "10000\n");
  write("/sys/fs/cgroup/a/b/c/memory.max", "max\n");
  EXPECT_EQ(free(), 50000u);
  write("/sys/fs/cgroup/a/memory.max", "400000\n");
  EXPECT_EQ(free(), 0u) << "more in use than allowed";
}

TEST_F(FreeMemory, limit_at_the_root_of_a_container_binds) {
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/fs/cgroup/memory.max", "300000\n");
  write("/sys/fs/cgroup/memory.current", "100000\n");
  EXPECT_EQ(free(), 200000u);
}

TEST_F(FreeMemory, idle_file_cache_counts_as_free) {
  write("/proc/self/cgroup", "0::/a\n");
  write("/sys/fs/cgroup/a/memory.max", "300000\n");
  write("/sys/fs/cgroup/a/memory.current", "290000\n");
  write("/sys/fs/cgroup/a/memory.stat", "anon 90000\nfile 200000\nactive_file 20000\ninactive_file 180000\n");
  EXPECT_EQ(free(), 190000u);
}

TEST_F(FreeMemory, groups_of_version_1_bind_too) {
  write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/pod/me\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("/sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "300000\n");
  write("/sys/fs/cgroup/memory/pod/memory.usage_in_bytes", "250000\n");
  write("/sys/fs/cgroup/memory/pod/memory.stat", "inactive_file 5\ntotal_inactive_file 40000\n");
  EXPECT_EQ(free(), 90000u);
}

}  // namespace
}  // namespace invar
