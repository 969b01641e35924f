#include "cli/npy_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

namespace invar {
namespace {

namespace fs = std::filesystem;

class NpyWriterTest : public testing::Test {
 protected:
  NpyWriterTest() : folder_(fs::path(testing::TempDir()) / ("npy_writer_" + std::to_string(::getpid()))) {
    fs::create_directory(folder_);
  }
  ~NpyWriterTest() override { fs::remove_all(folder_); }
  std::string path() const { return (folder_ / "x.npy").string(); }
  size_t files() const {
    return size_t(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

TEST_F(NpyWriterTest, writes_the_numpy_format) {
  const std::vector<float> rows = {1, 2, 3, -4, 0.5f, 1e-30f};
  {
    auto w = NpyWriter::create(path(), 2, 3);
    ASSERT_TRUE(w.ok());
    ASSERT_TRUE(w->append(std::span(rows).first(3)).ok());
    ASSERT_TRUE(w->append(std::span(rows).last(3)).ok());
    EXPECT_FALSE(fs::exists(path())) << "the target appears only when it is complete";
    ASSERT_TRUE(w->finish().ok());
  }
  std::ifstream in(path(), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  ASSERT_EQ(bytes.size() % 64, rows.size() * 4 % 64);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const size_t header = static_cast<unsigned char>(bytes[8]) + 256 * static_cast<unsigned char>(bytes[9]);
  ASSERT_EQ(bytes.size(), 10 + header + rows.size() * 4);
  EXPECT_EQ(bytes.substr(10, header).find("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"), 0u);
  EXPECT_EQ(bytes[10 + header - 1], '\n');
  EXPECT_EQ(std::memcmp(bytes.data() + 10 + header, rows.data(), rows.size() * 4), 0);
  EXPECT_EQ(files(), 1u);
}

TEST_F(NpyWriterTest, leaves_nothing_behind_when_given_up) {
  {
    auto w = NpyWriter::create(path(), 2, 3);
    ASSERT_TRUE(w.ok());
    ASSERT_TRUE(w->append(std::vector<float>(3)).ok());
  }
  EXPECT_EQ(files(), 0u);
}

TEST_F(NpyWriterTest, keeps_an_older_target_until_the_new_one_is_complete) {
  std::ofstream(path()) << "old";
  {
    auto w = NpyWriter::create(path(), 1, 1);
    ASSERT_TRUE(w.ok());
  }
  EXPECT_EQ(fs::file_size(path()), 3u);
}

TEST_F(NpyWriterTest, names_the_file_when_the_folder_is_missing) {
  const std::string target = (folder_ / "missing" / "x.npy").string();
  auto w = NpyWriter::create(target, 1, 1);
  ASSERT_FALSE(w.ok());
  EXPECT_NE(w.status().message().find(target), std::string::npos);
}

TEST_F(NpyWriterTest, refuses_to_replace_what_is_not_a_regular_file) {
  fs::create_symlink("/dev/null", folder_ / "link");
  auto w = NpyWriter::create((folder_ / "link").string(), 1, 1);
  ASSERT_FALSE(w.ok());
  EXPECT_NE(w.status().message().find("not a regular file"), std::string::npos);
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
}

TEST_F(NpyWriterTest, a_full_disk_is_an_error_with_a_remedy_and_leaves_nothing) {
  auto* old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit small = old;
  small.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  Status status;
  {
    auto w = NpyWriter::create(path(), 100, 1000);
    ASSERT_TRUE(w.ok());
    const std::vector<float> row(1000);
    for (int i = 0; i < 100 && status.ok(); ++i)
      status = w->append(row);
    if (status.ok()) status = w->finish();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_NE(status.message().find("space"), std::string::npos) << status.message();
  EXPECT_EQ(files(), 0u);
}

}  // namespace
}  // namespace invar
