#include "cli/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace invar {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class PromptFile : public testing::Test {
 protected:
  ~PromptFile() override { std::filesystem::remove(path_); }
  Result<std::vector<std::string>> read(const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    return prompts_from_file(path_);
  }
  std::string error(const std::string& text) {
    auto r = read(text);
    return r.ok() ? "no error" : r.status().message();
  }
  std::string path_ = testing::TempDir() + "prompts_" + std::to_string(::getpid());
};

TEST_F(PromptFile, one_prompt_per_line_without_empty_lines) {
  EXPECT_THAT(*read("one\n\n  two words \r\nthree"), ElementsAre("one", "  two words ", "three"));
}

TEST_F(PromptFile, json_lines_when_the_first_line_is_such_an_object) {
  EXPECT_THAT(*read("{\"prompt\": \"a\\nb\"}\n\n{\"prompt\":\"c\", \"id\": 3}\n"), ElementsAre("a\nb", "c"));
}

TEST_F(PromptFile, a_brace_alone_does_not_make_json) {
  EXPECT_THAT(*read("{not json}\nx\n"), ElementsAre("{not json}", "x"));
}

TEST_F(PromptFile, errors_name_the_line) {
  EXPECT_THAT(error("{\"prompt\": \"a\"}\nplain\n"), HasSubstr("line 2"));
  EXPECT_THAT(error("{\"prompt\": \"a\"}\n\n{\"prompt\": 3}\n"), HasSubstr("line 3"));
  EXPECT_THAT(error("{\"prompt\": \"\"}\n"), HasSubstr("empty"));
  EXPECT_THAT(error("\n \n"), HasSubstr("no prompts"));
}

TEST_F(PromptFile, missing_file_is_named) {
  auto r = prompts_from_file("/nonexistent/prompts");
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.status().message(), HasSubstr("/nonexistent/prompts"));
}

}  // namespace
}  // namespace invar
