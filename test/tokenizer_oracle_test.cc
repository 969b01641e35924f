// The tokenizer and the template that the program makes from the default model's GGUF file, against outside
// references. (Vocabularies of other kinds: src/text/tokenizer_test.cc.)

#include <gtest/gtest.h>

#include "cli/text_setup.h"
#include "format/model_source.h"
#include "text/tokenizer_fixtures.h"

namespace invar::text {
namespace {

TextModel default_model() {
  const std::string path = test_cache_path("smollm2.gguf");
  auto source = ModelSource::open(path);
  EXPECT_TRUE(source.ok()) << source.status().message() << "; run test/fetch_tokenizers.sh";
  if (!source.ok()) return {};
  auto setup = set_up_text(**source);
  EXPECT_TRUE(setup.ok()) << setup.status().message();
  return setup.ok() ? std::move(*setup) : TextModel();
}

TEST(TokenizerOracle, smollm2_gguf_gives_the_reference_ids_and_text) {
  const TextModel setup = default_model();
  ASSERT_NE(setup.tokenizer, nullptr);
  EXPECT_EQ(setup.tokenizer->vocab_size(), 49152);
  EXPECT_EQ(setup.tokenizer->bos(), 1);
  EXPECT_EQ(setup.tokenizer->eos(), 2);
  EXPECT_FALSE(setup.tokenizer->add_bos());
  const std::vector<OracleRow> rows = oracle_rows("smollm2-gguf");
  expect_oracle_ids(*setup.tokenizer, rows);
  for (const OracleRow& row : rows) {
    expect_streams(setup.tokenizer, row);
    if (HasFatalFailure()) return;
  }
}

TEST(TokenizerOracle, smollm2_gguf_template_gives_the_reference_prompt) {
  const TextModel setup = default_model();
  ASSERT_NE(setup.chat_template, nullptr) << setup.template_error.message();
  int checked = 0;
  const boost::json::value cases = boost::json::parse(test_data("templates/cases.json"));
  for (const auto& c : cases.at("cases").as_array()) {
    if (as_string(c.at("template")) != "smollm2-gguf.jinja") continue;
    ++checked;
    const auto rendered = setup.chat_template->render(as_string(c.at("context")), c.at("now").as_int64());
    ASSERT_TRUE(rendered.ok()) << rendered.status().message();
    EXPECT_EQ(rendered->text, as_string(c.at("expected")));
  }
  EXPECT_EQ(checked, 2);
  // What the program sends: the system prompt of the template, no second BOS.
  const auto ids = encode_chat(setup, {{"user", "Hi"}});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->front(), 1);
  EXPECT_NE((*ids)[1], 1);
}

}  // namespace
}  // namespace invar::text
