#include "cli/line_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string_view>
#include <thread>

namespace invar {
namespace {

// A pipe with this text in it, and its end.
class LineReaderTest : public ::testing::Test {
 protected:
  int pipe_with(std::string_view text) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    writer_ = std::thread([fd = ends[1], text = std::string(text)] {
      for (size_t at = 0; at < text.size();) {
        const ssize_t n = ::write(fd, text.data() + at, text.size() - at);
        if (n <= 0) break;
        at += size_t(n);
      }
      ::close(fd);
    });
    read_end_ = ends[0];
    return ends[0];
  }
  ~LineReaderTest() override {
    if (writer_.joinable()) writer_.join();
    ::close(read_end_);
  }
  std::thread writer_;
  int read_end_ = -1;
};

TEST_F(LineReaderTest, reads_lines_and_a_last_one_without_its_end) {
  LineReader reader(pipe_with("one\r\n\ntwo\nthree"), 100);
  for (const char* want : {"one", "", "two", "three"}) {
    const auto line = reader.next();
    ASSERT_TRUE(line.ok() && line->has_value());
    EXPECT_EQ(**line, want);
  }
  for (int i = 0; i < 2; ++i) {
    const auto end = reader.next();
    ASSERT_TRUE(end.ok());
    EXPECT_FALSE(end->has_value());
  }
}

TEST_F(LineReaderTest, skips_what_is_too_long_and_goes_on_behind_it) {
  const std::string long_line(300'000, 'x');
  LineReader reader(pipe_with("a\n" + long_line + "\nb\n" + long_line), 1000);
  EXPECT_EQ(**reader.next(), "a");
  EXPECT_EQ(reader.next().status().code(), Code::kInvalidArgument);
  EXPECT_EQ(**reader.next(), "b");
  EXPECT_EQ(reader.next().status().code(), Code::kInvalidArgument);
  EXPECT_FALSE(reader.next()->has_value());
}

}  // namespace
}  // namespace invar
