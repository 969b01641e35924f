#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace invar {
namespace {

std::string write_temporary(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + "invar_" + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST(MappedFile, ShowsTheBytesAndSurvivesMoveDropAndUnlink) {
  const std::string text(3 * 4096 + 17, 'q'), path = write_temporary("mapped", text);
  Result<MappedFile> file = MappedFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  MappedFile moved = std::move(*file);
  std::remove(path.c_str());
  ASSERT_EQ(moved.bytes().size(), text.size());
  moved.drop(0, text.size());
  moved.drop(5, 100);
  moved.drop(text.size(), 0);
  EXPECT_EQ(std::memcmp(moved.bytes().data(), text.data(), text.size()), 0);
  EXPECT_EQ(moved.path(), path);
}

TEST(MappedFile, ModificationTimeIsThatOfTheMappedFileNotOfThePath) {
  const std::string path = write_temporary("swapped", "old"), other = write_temporary("other", "new");
  using namespace std::chrono_literals;
  const auto then = std::filesystem::last_write_time(path) - 1h;
  std::filesystem::last_write_time(path, then);
  const Result<MappedFile> before = MappedFile::open(path);
  ASSERT_TRUE(before.ok());
  const int64_t modified_ns = before->modified_ns();
  std::filesystem::rename(other, path);
  const Result<MappedFile> after = MappedFile::open(path);
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(before->modified_ns(), modified_ns);
  EXPECT_GT(after->modified_ns(), modified_ns + 3'500'000'000'000);
  std::remove(path.c_str());
}

TEST(MappedFile, EmptyFileIsAnEmptySpan) {
  const std::string path = write_temporary("empty", "");
  const Result<MappedFile> file = MappedFile::open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->bytes().empty());
  std::remove(path.c_str());
}

TEST(MappedFile, ErrorsNameThePath) {
  const auto missing = MappedFile::open("/no/such/file").status();
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_NE(missing.message().find("/no/such/file"), std::string::npos);
  const auto directory = MappedFile::open(::testing::TempDir()).status();
  EXPECT_EQ(directory.code(), Code::kInvalidArgument);
  EXPECT_NE(directory.message().find("directory"), std::string::npos);
  EXPECT_EQ(MappedFile::open("/dev/null").status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace invar
