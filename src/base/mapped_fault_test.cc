#include "base/mapped_fault.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/mapped_file.h"

namespace invar {
namespace {

std::string write_pages(const std::string& name, size_t pages) {
  const std::string path = ::testing::TempDir() + "invar_" + name;
  std::ofstream(path, std::ios::binary) << std::string(pages * 4096 - 100, 'x');
  return path;
}

std::byte touch(std::span<const std::byte> bytes) {
  const volatile std::byte* p = bytes.data();
  return p[bytes.size() - 1];
}

TEST(MappedFaultDeathTest, a_file_that_is_cut_while_in_use_is_named) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string path = write_pages("cut", 4);
  Result<MappedFile> opened = MappedFile::open(path);
  ASSERT_TRUE(opened.ok());
  const MappedFile file = std::move(*opened);  // the notice moves along
  EXPECT_EXIT(
      {
        std::filesystem::resize_file(path, 4096);
        touch(file.bytes());
      },
      ::testing::ExitedWithCode(1), "invar: .*invar_cut: the file was cut short while it was in use");
  std::filesystem::remove(path);
}

TEST(MappedFaultDeathTest, a_fault_elsewhere_keeps_its_signal) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string path = write_pages("kept", 4);
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, SIG_DFL);  // of a sanitizer, perhaps
        const Result<MappedFile> file = MappedFile::open(path);
        MappedFault given_back(file->bytes(), "twice");
        given_back = MappedFault();
        const int fd = ::open(path.c_str(), O_RDONLY);
        const auto* unknown =
            static_cast<const std::byte*>(::mmap(nullptr, 16384, PROT_READ, MAP_SHARED, fd, 0));
        std::filesystem::resize_file(path, 4096);
        touch({unknown, 16384});
      },
      ::testing::KilledBySignal(SIGBUS), "^$");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace invar
