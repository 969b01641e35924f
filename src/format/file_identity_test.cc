#include "format/file_identity.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "format/test_files.h"

namespace invar {
namespace {

TEST(FileIdentity, a_file_swapped_under_its_path_changes_nothing) {
  const TemporaryFolder folder;
  const std::string path = folder.path("model"), other = folder.path("other");
  write_file(path, "old");
  write_file(other, "new");
  using namespace std::chrono_literals;
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) - 1h);
  const Result<MappedFile> file = MappedFile::open(path);
  ASSERT_TRUE(file.ok());
  const std::string identity = file_identity(*file, 2);
  std::filesystem::rename(other, path);
  EXPECT_EQ(file_identity(*file, 2), identity);
  EXPECT_NE(file_identity(*MappedFile::open(path), 2), identity);
}

}  // namespace
}  // namespace invar
