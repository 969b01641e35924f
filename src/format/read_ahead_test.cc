#include "format/read_ahead.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace invar {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kBytes = (size_t{9} << 20) + 123;

// A cold file in /var/tmp, which lies on a disk where /tmp may lie in memory.
class ReadAheadTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = "/var/tmp/invar-test-XXXXXX";
    fd_ = mkstemp(name.data());
    ASSERT_GE(fd_, 0) << name;
    unlink(name.c_str());
    const std::string bytes(kBytes, 'w');
    ASSERT_EQ(write(fd_, bytes.data(), kBytes), ssize_t(kBytes));
    fsync(fd_);
    posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
    map_ = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd_, 0);
    ASSERT_NE(map_, MAP_FAILED);
    if (pages_in_memory() > 0) GTEST_SKIP() << "no file of /var/tmp is ever cold: it lies in memory";
  }
  ~ReadAheadTest() override {
    munmap(map_, kBytes);
    close(fd_);
  }
  std::span<const std::byte> map() const { return {static_cast<const std::byte*>(map_), kBytes}; }
  size_t pages_in_memory() const {
    std::vector<unsigned char> resident(kBytes / 4096 + 1);
    EXPECT_EQ(mincore(map_, kBytes, resident.data()), 0);
    return size_t(std::count_if(resident.begin(), resident.end(), [](unsigned char c) { return c & 1; }));
  }

 private:
  int fd_ = -1;
  void* map_ = MAP_FAILED;
};

TEST_F(ReadAheadTest, brings_a_cold_file_into_memory_and_says_so) {
  testing::internal::CaptureStderr();
  {
    ReadAhead ahead(map(), true, 1);
    EXPECT_TRUE(ahead.needed());
    ahead.wait();
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("reading weights: 100% of 9.0 MiB"));
  EXPECT_EQ(pages_in_memory(), kBytes / 4096 + 1);

  testing::internal::CaptureStderr();
  EXPECT_FALSE(ReadAhead(map(), true, 1).needed());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
}

TEST_F(ReadAheadTest, says_nothing_of_a_small_file_or_where_nobody_asks_and_ends_early) {
  testing::internal::CaptureStderr();
  EXPECT_TRUE(ReadAhead(map(), true, kBytes + 1).needed());
  EXPECT_TRUE(ReadAhead(map(), false, 1).needed());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
  EXPECT_FALSE(ReadAhead({}, true, 0).needed());
}

}  // namespace
}  // namespace invar
