#include "cli/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cli/text_setup.h"

namespace invar {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::shared_ptr<const text::Tokenizer> small_tokenizer() {
  const auto source = ModelSource::open(INVAR_TEST_DATA "/oracles/gguf/lossless/llama-untied.gguf");
  if (!source.ok()) return nullptr;
  const auto setup = set_up_text(**source);
  return setup.ok() ? setup->tokenizer : nullptr;
}

class PromptFile : public testing::Test {
 protected:
  ~PromptFile() override { std::filesystem::remove(path_); }
  // The prompts of such a file; "! message" for a line with an error.
  std::vector<std::string> read(const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    const auto prompts = prompts_from_file(path_);
    if (!prompts.ok()) return {"! " + prompts.status().message()};
    std::vector<std::string> out;
    for (const FilePrompt& p : *prompts) {
      EXPECT_THAT(p.where, StartsWith(path_ + ": line "));
      out.push_back(p.text.ok() ? *p.text
                                : "! " + p.where.substr(path_.size() + 2) + ": " + p.text.status().message());
    }
    return out;
  }
  std::string path_ = testing::TempDir() + "prompts_" + std::to_string(::getpid());
};

TEST_F(PromptFile, one_prompt_per_line_without_empty_lines) {
  EXPECT_THAT(read("one\n\n  two words \r\nthree"), ElementsAre("one", "  two words ", "three"));
}

TEST_F(PromptFile, is_json_lines_when_the_first_line_starts_with_a_brace) {
  EXPECT_THAT(read("\n {\"prompt\": \"a\\nb\"}\n\n{\"prompt\":\"c\", \"id\": 3}\n"),
              ElementsAre("a\nb", "c"));
  EXPECT_THAT(read("x\n{\"prompt\": \"a\"}\n"), ElementsAre("x", "{\"prompt\": \"a\"}"));
  EXPECT_THAT(read("[1]\n\"a\"\n"), ElementsAre("[1]", "\"a\""));
}

TEST_F(PromptFile, is_json_lines_by_its_name) {
  path_ += ".jsonl";
  EXPECT_THAT(read("plain\n{\"prompt\": \"a\"}\n[1]\n"),
              ElementsAre(HasSubstr("line 1: not JSON"), "a", HasSubstr("line 3: must be an object")));
}

TEST_F(PromptFile, a_line_that_does_not_parse_is_never_a_plain_prompt) {
  EXPECT_THAT(read("{\"prompt\": \"a\n{\"prompt\": \"b\"}\n"),
              ElementsAre(HasSubstr("! line 1: not JSON"), "b"));
  EXPECT_THAT(read("{not json}\nx\n"),
              ElementsAre(HasSubstr("! line 1: not JSON"), HasSubstr("! line 2: not JSON")));
}

TEST_F(PromptFile, skips_a_byte_order_mark) {
  EXPECT_THAT(read("\xEF\xBB\xBFone\ntwo\n"), ElementsAre("one", "two"));
  EXPECT_THAT(read("\xEF\xBB\xBF{\"prompt\": \"a\"}\n"), ElementsAre("a"));
}

TEST_F(PromptFile, errors_are_those_of_their_lines) {
  EXPECT_THAT(
      read("{\"prompt\": \"a\"}\nplain\n\n{\"prompt\": 3}\n{\"prompt\": \"\"}\n{\"prompt\": \"z\"}\n"),
      ElementsAre("a", HasSubstr("! line 2: not JSON"), HasSubstr("! line 4: must be an object"),
                  "! line 5: the prompt is empty", "z"));
  EXPECT_THAT(read("\n \n"), ElementsAre(HasSubstr("no prompts")));
}

TEST_F(PromptFile, one_prompt_and_one_file_have_a_greatest_size) {
  EXPECT_THAT(
      read("a\n" + std::string(kMaxPromptBytes + 1, 'x') + "\nb\n"),
      ElementsAre("a", HasSubstr("! line 2: the prompt has 16777217 bytes, the most is 16777216"), "b"));
  std::ofstream(path_, std::ios::binary) << std::string(5000, 'x');
  const auto r = read_text(path_, 4096);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.status().message(), path_ + ": more than 4.0 KiB of text; shorten it");
}

TEST(PromptSize, what_cannot_fit_is_refused_before_it_is_tokenized) {
  const auto tokenizer = small_tokenizer();
  ASSERT_NE(tokenizer, nullptr);
  size_t longest = 0;
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id)
    longest = std::max(longest, tokenizer->token_bytes(id).size());
  const int32_t context = 100'000;
  EXPECT_TRUE(check_prompt_size(size_t(context) * longest, *tokenizer, context).ok());
  const Status s = check_prompt_size(size_t(context + 1) * longest, *tokenizer, context);
  ASSERT_FALSE(s.ok());
  EXPECT_THAT(s.message(), HasSubstr("at least 100001 tokens"));
  EXPECT_THAT(s.message(), HasSubstr("context of 100000 tokens"));
  EXPECT_TRUE(check_prompt_size(64 << 10, *tokenizer, 16).ok()) << "is tokenized, which may drop blanks";
}

TEST_F(PromptFile, missing_file_is_named) {
  auto r = prompts_from_file("/nonexistent/prompts");
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.status().message(), HasSubstr("/nonexistent/prompts"));
}

}  // namespace
}  // namespace invar
