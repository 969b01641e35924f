#include "base/usable_cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

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
  EXPECT_EQ(cores.count, cores.physical);
  EXPECT_EQ(cores.physical, int(cores.affinity.size()));  // nothing is said of siblings
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

TEST_F(UsableCoresTest, SiblingsOfAPhysicalCoreCountOnce) {
  const std::vector<int> all = usable_cores(root_).affinity;
  for (const int core : all)  // pairs: 0 and 1, 2 and 3
    write("/sys/devices/system/cpu/cpu" + std::to_string(core) + "/topology/thread_siblings_list",
          std::to_string(core / 2 * 2) + "-" + std::to_string(core / 2 * 2 + 1) + "\n");
  std::vector<int> firsts, others;
  for (const int core : all)
    (std::find_if(firsts.begin(), firsts.end(), [&](int c) { return c / 2 == core / 2; }) == firsts.end()
         ? firsts
         : others)
        .push_back(core);
  const UsableCores cores = usable_cores(root_);
  EXPECT_EQ(cores.physical, int(firsts.size()));
  EXPECT_EQ(cores.count, cores.physical);
  firsts.insert(firsts.end(), others.begin(), others.end());
  EXPECT_EQ(cores.affinity, firsts);
}

TEST(BindToCores, takes_lists_of_what_there_is) {
  const std::vector<int> before = usable_cores().affinity;
  std::thread([&] {  // the others stay as they are
    ASSERT_TRUE(bind_to_cores(std::to_string(before.back())).ok());
    EXPECT_EQ(usable_cores().affinity, std::vector<int>{before.back()});
    for (const char* wrong : {"", "a", "1-", "-1", "2-1", "0,", "0 ", "0-99999999999", "70000"})
      EXPECT_THAT(bind_to_cores(wrong).message(), testing::HasSubstr("is no list of CPU numbers")) << wrong;
    EXPECT_THAT(bind_to_cores("65000").message(), testing::HasSubstr("CPU 65000 is none of the 1"));
    EXPECT_EQ(usable_cores().affinity, std::vector<int>{before.back()});
  })
      .join();
  EXPECT_EQ(usable_cores().affinity, before);
}

}  // namespace
}  // namespace invar
