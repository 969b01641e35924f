#include "cli/text_setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace invar {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::StartsWith;

struct Opened {
  std::unique_ptr<ModelSource> source;
  text::TextModel text;
};

Opened open(const std::string& name) {
  auto source = ModelSource::open(std::string(INVAR_TEST_DATA) + "/oracles/" + name);
  EXPECT_TRUE(source.ok()) << source.status().message();
  auto text = set_up_text(**source);
  EXPECT_TRUE(text.ok()) << text.status().message();
  return {std::move(*source), std::move(*text)};
}

const char* const kPairs[] = {"llama-untied", "qwen2-bias", "qwen3-qknorm", "smollm3-nope"};

TEST(TextSetup, a_gguf_file_and_its_folder_give_the_same_ids) {
  for (const std::string name : kPairs) {
    const Opened folder = open("models/" + name), file = open("gguf/lossless/" + name + ".gguf");
    for (const char* text :
         {"The quick brown fox", "  two  blanks\n", "gr\xC3\xBC\xC3\x9F \xF0\x9F\x91\x8D"}) {
      EXPECT_EQ(*encode_raw(folder.text, text), *encode_raw(file.text, text)) << name << ": " << text;
      EXPECT_EQ(*encode_chat(folder.text, {{"user", text}}), *encode_chat(file.text, {{"user", text}}))
          << name;
    }
  }
}

TEST(TextSetup, a_bos_token_stands_once_at_the_start_where_the_tokenizer_adds_one) {
  const Opened with = open("models/llama-untied");
  const int32_t bos = with.text.tokenizer->bos();
  for (const auto& ids : {*encode_raw(with.text, "hello"), *encode_chat(with.text, {{"user", "hello"}})}) {
    EXPECT_EQ(ids.front(), bos);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), bos), 1);
  }
  const Opened without = open("models/qwen2-bias");
  EXPECT_EQ(encode_raw(without.text, "hello")->size(),
            without.text.tokenizer->encode("hello", text::Special::kParse)->size());
}

TEST(TextSetup, messages_reach_the_prompt) {
  const Opened o = open("models/qwen2-bias");
  const auto short_ids = *encode_chat(o.text, {{"user", "a"}});
  const auto long_ids = *encode_chat(o.text, {{"system", "be brief"}, {"user", "a"}});
  EXPECT_GT(long_ids.size(), short_ids.size());
}

TEST(TextSetup, stop_ids_come_from_the_generation_settings_too) {
  const Opened o = open("models/llama-untied");  // generation_config.json: eos_token_id
  EXPECT_THAT(o.text.stop_ids, Contains(477));
  EXPECT_TRUE(std::is_sorted(o.text.stop_ids.begin(), o.text.stop_ids.end()));
  EXPECT_THAT(open("gguf/lossless/llama-untied.gguf").text.stop_ids, Contains(477));
}

// The oracle's folder with one piece of a file replaced: the error of its text.
std::string error_with(const std::string& file, const std::string& from, const std::string& to) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / "invar-text-setup";
  fs::remove_all(folder);
  fs::copy(INVAR_TEST_DATA "/oracles/models/llama-untied", folder);
  const fs::path path = folder / file;
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  std::string changed = text.str();
  const size_t at = changed.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) changed.replace(at, from.size(), to);
  fs::permissions(path, fs::perms::owner_write, fs::perm_options::add);
  std::ofstream(path, std::ios::binary) << changed;
  const auto source = ModelSource::open(folder.string());
  if (!source.ok()) return source.status().message();
  const auto model = set_up_text(**source);
  fs::remove_all(folder);
  return model.ok() ? "ok" : model.status().message();
}

TEST(TextSetup, token_ids_must_have_an_embedding_row) {
  EXPECT_EQ(error_with("generation_config.json", "477", "479"), "ok");
  EXPECT_THAT(error_with("generation_config.json", "477", "480"),
              HasSubstr("generation_config.json: eos_token_id 480 is outside the 480 embedding rows"));
  EXPECT_THAT(error_with("config.json", "477", "100000"), HasSubstr("config.json: eos_token_id 100000"));
  // One token more than the table has rows.
  EXPECT_THAT(error_with("tokenizer.json", "}],\"normalizer\"",
                         "},{\"id\":480,\"content\":\"<extra>\",\"single_word\":false,\"lstrip\":false,"
                         "\"rstrip\":false,\"normalized\":false,\"special\":true}],\"normalizer\""),
              HasSubstr("the tokenizer has 481 tokens, but the model has 480 embedding rows"));
}

// A key that is called otherwise is not there.
TEST(TextSetup, a_gguf_file_without_merges_or_token_types_is_refused_by_key) {
  namespace fs = std::filesystem;
  const fs::path path = fs::path(testing::TempDir()) / ("text_setup_" + std::to_string(::getpid()) + ".gguf");
  for (const std::string key : {"tokenizer.ggml.merges", "tokenizer.ggml.token_type"}) {
    std::ostringstream text;
    text << std::ifstream(INVAR_TEST_DATA "/oracles/gguf/lossless/llama-untied.gguf", std::ios::binary)
                .rdbuf();
    std::string changed = text.str();
    const size_t at = changed.find(key);
    ASSERT_NE(at, std::string::npos) << key;
    changed[at] = 'T';
    std::ofstream(path, std::ios::binary) << changed;
    const auto source = ModelSource::open(path.string());
    ASSERT_TRUE(source.ok()) << source.status().message();
    EXPECT_THAT(set_up_text(**source).status().message(),
                testing::AllOf(HasSubstr(key + " is missing"), HasSubstr("convert the model again")));
  }
  fs::remove(path);
}

TEST(TextSetup, a_template_that_does_not_compile_names_where_it_comes_from) {
  const auto source = ModelSource::open(INVAR_TEST_DATA "/oracles/models/llama-untied");
  ASSERT_TRUE(source.ok()) << source.status().message();
  const auto given = set_up_text(**source, {.chat_template = "\xff"});
  EXPECT_THAT(given->template_error.message(), StartsWith("--chat-template: "));
}

TEST(TextSetup, errors_name_the_file_once) {
  namespace fs = std::filesystem;
  const fs::path from = fs::path(INVAR_TEST_DATA) / "oracles/models/llama-untied";
  const fs::path folder = fs::path(testing::TempDir()) / ("text_setup_once_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  for (const char* name : {"config.json", "model.safetensors"})
    fs::copy_file(from / name, folder / name);
  const auto source = ModelSource::open(folder.string());
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_EQ(set_up_text(**source).status().message(),
            folder.string() +
                "/tokenizer.json: no such file, nor tekken.json, qwen.tiktoken; copy the "
                "tokenizer's file from where the model came from");
  std::ofstream(folder / "tokenizer.model") << "\n\x05";
  EXPECT_THAT(set_up_text(**source).status().message(),
              StartsWith(folder.string() + ": tokenizer.model: a SentencePiece file"));
  std::ofstream(folder / "tokenizer.json") << "{";
  EXPECT_THAT(set_up_text(**source).status().message(),
              testing::AllOf(StartsWith(folder.string() + ": tokenizer.json: "),
                             HasSubstr("; copy the tokenizer's files again")));
  std::ofstream(folder / "chat_template.jinja") << "\xff";
  fs::copy_file(from / "tokenizer.json", folder / "tokenizer.json", fs::copy_options::overwrite_existing);
  fs::remove(folder / "tokenizer.model");
  EXPECT_THAT(set_up_text(**source)->template_error.message(), StartsWith(folder.string() + ": "));
  fs::remove_all(folder);
}

TEST(TextSetup, a_folder_may_hold_ranks_and_a_tokenizer_of_another_model_is_an_error) {
  namespace fs = std::filesystem;
  const fs::path from = fs::path(INVAR_TEST_DATA) / "oracles/models/llama-untied";
  const fs::path folder = fs::path(testing::TempDir()) / ("text_setup_ranks_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  for (const char* name : {"config.json", "model.safetensors"})
    fs::copy_file(from / name, folder / name);
  const auto source = ModelSource::open(folder.string());
  ASSERT_TRUE(source.ok()) << source.status().message();
  // 256 bytes, then 224 special tokens: as many ids as the model has rows.
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto write = [&](int special) {
    std::ofstream file(folder / "tekken.json");
    file << R"({"config":{"pattern":".","default_vocab_size":)" << 256 + special
         << R"(,"default_num_special_tokens":)" << special << R"(},"vocab":[)";
    for (int byte = 0; byte < 256; ++byte)
      file << (byte == 0 ? "" : ",") << R"({"rank":)" << byte << R"(,"token_bytes":")" << kDigits[byte >> 2]
           << kDigits[(byte & 3) << 4] << "==\"}";
    file << "]}";
  };
  write(220);  // eos_token_id of the configuration is 477
  const auto text = set_up_text(**source);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_THAT(*encode_raw(*text, "a"), testing::ElementsAre(1, 220 + 'a'));
  EXPECT_THAT(text->stop_ids, Contains(2));
  write(225);
  EXPECT_EQ(set_up_text(**source).status().message(),
            folder.string() +
                ": the tokenizer has 481 tokens, but the model has 480 embedding rows: they are "
                "of different models; take both from one place");
  fs::remove_all(folder);
}

TEST(TextSetup, a_model_without_a_template_says_so_only_when_one_is_needed) {
  Opened o = open("models/llama-untied");
  o.text.chat_template = nullptr;
  o.text.template_error = not_found("the model has no chat template; use --raw");
  EXPECT_TRUE(encode_raw(o.text, "x").ok());
  EXPECT_THAT(encode_chat(o.text, {{"user", "x"}}).status().message(), HasSubstr("--raw"));
}

}  // namespace
}  // namespace invar
