#include "cli/new_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace invar {
namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class NewFileTest : public ::testing::Test {
 protected:
  NewFileTest() : folder(fs::path(::testing::TempDir()) / ("new-file-" + std::to_string(::getpid()))) {
    fs::create_directories(folder);
  }
  ~NewFileTest() override { fs::remove_all(folder); }
  size_t files() const {
    return size_t(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }

  fs::path folder;
};

TEST_F(NewFileTest, is_there_when_it_is_finished) {
  for (const auto existing : {Existing::kReplaced, Existing::kKept}) {
    const fs::path path = folder / std::to_string(int(existing));
    NewFile file(path, "", existing);
    ASSERT_TRUE(file.open().ok());
    ASSERT_TRUE(file.write("ours").ok());
    EXPECT_FALSE(fs::exists(path));
    ASSERT_TRUE(file.finish().ok());
    EXPECT_EQ(content_of(path), "ours");
  }
  EXPECT_EQ(files(), 2u);
}

TEST_F(NewFileTest, a_file_that_somebody_made_meanwhile_is_kept_where_a_new_one_was_asked_for) {
  const fs::path path = folder / "model.gguf";
  for (const auto existing : {Existing::kKept, Existing::kReplaced}) {
    NewFile file(path, "", existing);
    ASSERT_TRUE(file.open().ok());
    ASSERT_TRUE(file.write("ours").ok());
    std::ofstream(path) << "theirs";
    const Status s = file.finish();
    const bool kept = existing == Existing::kKept;
    EXPECT_EQ(s.ok(), !kept) << s.message();
    EXPECT_EQ(content_of(path), kept ? "theirs" : "ours");
    if (!kept) continue;
    EXPECT_EQ(s.message().find(path.string() + ": was made by somebody else"), 0u) << s.message();
    EXPECT_NE(s.message().find("--overwrite"), std::string::npos) << s.message();
  }
  EXPECT_EQ(files(), 1u);  // the unfinished file went
}

}  // namespace
}  // namespace invar
