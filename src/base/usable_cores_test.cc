#include "base/usable_cores.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace invar {
namespace {

class UsableCoresTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "invar_cores_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::string root_;
};

TEST_F(UsableCoresTest, NoCgroupMeansAffinity) {
  const UsableCores cores = usable_cores(root_);
  EXPECT_EQ(cores.count, int(cores.affinity.size()));
  EXPECT_FALSE(cores.limited_by_quota);
}

TEST_F(UsableCoresTest, SmallestQuotaOnTheWayUpCounts) {
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/sys/fs/cgroup/a/cpu.max", "50000 100000\n");
  write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  const UsableCores cores = usable_cores(root_);
  EXPECT_EQ(cores.count, 1);
  EXPECT_TRUE(cores.limited_by_quota);
}

TEST_F(UsableCoresTest, QuotaAboveTheAffinityIsNoLimit) {
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/fs/cgroup/cpu.max", "100000000 100000\n");
  EXPECT_FALSE(usable_cores(root_).limited_by_quota);
}

TEST_F(UsableCoresTest, VersionOneQuotaCounts) {
  write("/proc/self/cgroup", "7:memory:/x\n4:cpu,cpuacct:/x\n");
  write("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "60000\n");
  write("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
  EXPECT_TRUE(usable_cores(root_).limited_by_quota);
}

TEST_F(UsableCoresTest, GarbageIsNoLimit) {
  write("/proc/self/cgroup", "nonsense\n0::\n");
  write("/sys/fs/cgroup/cpu.max", "many\n");
  EXPECT_FALSE(usable_cores(root_).limited_by_quota);
}

}  // namespace
}  // namespace invar
