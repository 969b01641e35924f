#include "base/temporary_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace invar {
namespace {

namespace fs = std::filesystem;

TEST(TemporaryFilesDeathTest, the_unfinished_are_removed_at_the_end_and_the_finished_stay) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  // The child of a death test runs this test anew: its name must not depend on the process.
  const fs::path folder = fs::path(testing::TempDir()) / "temporary_files_test";
  const std::string finished = folder / "finished", unfinished = folder / "unfinished";
  fs::create_directories(folder);
  EXPECT_EXIT(
      {
        const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
        if (open_temporary(unfinished, flags, 0644) < 0 || open_temporary(finished, flags, 0644) < 0)
          ::_exit(1);
        forget_temporary(finished);
        if (!fs::exists(unfinished)) ::_exit(2);
        exit_without_temporaries(3);
      },
      testing::ExitedWithCode(3), "");
  EXPECT_TRUE(fs::exists(finished));
  EXPECT_FALSE(fs::exists(unfinished));
  fs::remove_all(folder);
}

TEST(TemporaryFiles, an_error_is_that_of_open) {
  errno = 0;
  EXPECT_EQ(open_temporary("/nonexistent/x", O_WRONLY | O_CREAT | O_CLOEXEC, 0644), -1);
  EXPECT_EQ(errno, ENOENT);
}

}  // namespace
}  // namespace invar
