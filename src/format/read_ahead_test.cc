#include "format/read_ahead.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "format/test_files.h"

namespace invar {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kBytes = (size_t{9} << 20) + 123;

class ColdFile {
 public:
  ColdFile() {
    const std::string path = folder_.path("weights");
    write_file(path, std::string(kBytes, 'w'));
    fd_ = open(path.c_str(), O_RDONLY);
    fsync(fd_);
    posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
    map_ = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd_, 0);
  }
  ~ColdFile() {
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
  TemporaryFolder folder_;
  int fd_ = -1;
  void* map_ = nullptr;
};

TEST(ReadAhead, brings_a_cold_file_into_memory_and_says_so) {
  const ColdFile file;
  if (file.pages_in_memory() > 0) GTEST_SKIP() << "the folder of temporary files lies in memory";
  testing::internal::CaptureStderr();
  {
    ReadAhead ahead(file.map(), true, 1);
    EXPECT_TRUE(ahead.needed());
    ahead.wait();
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("reading weights: 100% of 9.0 MiB"));
  EXPECT_EQ(file.pages_in_memory(), kBytes / 4096 + 1);

  testing::internal::CaptureStderr();
  EXPECT_FALSE(ReadAhead(file.map(), true, 1).needed());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
}

TEST(ReadAhead, says_nothing_of_a_small_file_or_where_nobody_asks_and_ends_early) {
  const ColdFile file;
  if (file.pages_in_memory() > 0) GTEST_SKIP() << "the folder of temporary files lies in memory";
  testing::internal::CaptureStderr();
  EXPECT_TRUE(ReadAhead(file.map(), true, kBytes + 1).needed());
  EXPECT_TRUE(ReadAhead(file.map(), false, 1).needed());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
  EXPECT_FALSE(ReadAhead({}, true, 0).needed());
}

}  // namespace
}  // namespace invar
