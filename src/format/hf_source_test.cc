#include <gmock/gmock.h>

#include <filesystem>

#include "format/hf_config.h"
#include "format/model_source.h"
#include "format/test_files.h"

namespace invar {
namespace {

TEST(HfSource, a_byte_order_mark_in_front_of_json_is_no_part_of_it) {
  const TemporaryFolder folder;
  std::filesystem::copy(INVAR_TEST_DATA "/oracles/models/llama-untied/model.safetensors",
                        folder.path("model.safetensors"));
  write_file(folder.path("config.json"), "\xEF\xBB\xBF{\"model_type\": \"llama\"}");
  write_file(folder.path("tokenizer.json"), "\xEF\xBB\xBF{}");
  write_file(folder.path("chat_template.jinja"), "\xEF\xBB\xBFx");
  const auto source = ModelSource::open(folder.path());
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_EQ((*source)->architecture(), "llama");
  EXPECT_EQ(*(*source)->side_file("config.json"), "{\"model_type\": \"llama\"}");
  EXPECT_EQ(*(*source)->side_file("tokenizer.json"), "{}");
  EXPECT_EQ(*(*source)->side_file("chat_template.jinja"), "\xEF\xBB\xBFx");  // a template's text is its own
  // A second one is an error of the file.
  write_file(folder.path("config.json"), "\xEF\xBB\xBF\xEF\xBB\xBF{}");
  EXPECT_FALSE(ModelSource::open(folder.path()).ok());
}

// A folder with the files of a divided model.
class Divided : public testing::Test {
 protected:
  Divided() {
    const std::filesystem::path oracle = INVAR_TEST_DATA "/oracles/models/gemma4-e2b-std-nested";
    for (const auto& item : std::filesystem::directory_iterator(oracle))
      std::filesystem::copy(item.path(), folder_.path(item.path().filename()));
  }
  std::string error(const std::string& path = "") const {
    const auto source = ModelSource::open(folder_.path(path));
    return source.ok() ? "ok" : source.status().message();
  }
  void write_index(const std::string& text) const {
    write_file(folder_.path("model.safetensors.index.json"), text);
  }
  const TemporaryFolder folder_;
};

TEST_F(Divided, all_files_of_the_index_are_one_model_under_the_names_of_its_decoder) {
  for (const char* path : {"", "model-00002-of-00002.safetensors"}) {
    const auto source = ModelSource::open(folder_.path(path));
    ASSERT_TRUE(source.ok()) << source.status().message();
    EXPECT_EQ((*source)->architecture(), "gemma4_text");
    const SourceTensor* first = (*source)->find("model.embed_tokens.weight");
    const SourceTensor* last = (*source)->find("model.layers.7.self_attn.q_proj.weight");
    ASSERT_TRUE(first != nullptr && last != nullptr);
    EXPECT_EQ(first->stored_name, "model.language_model.embed_tokens.weight");
    EXPECT_EQ((*source)->files().size(), 5u);
    (*source)->drop_tensor_pages();  // of both maps
    EXPECT_EQ(first->data.size(), 480u * 64 * 2);
  }
}

TEST_F(Divided, every_part_counts_for_the_identity) {
  const std::string before = (*ModelSource::open(folder_.path()))->identity();
  auto bytes = read_file(folder_.path("model-00002-of-00002.safetensors"));
  bytes.back() ^= std::byte{1};
  write_file(folder_.path("model-00002-of-00002.safetensors"), bytes);
  EXPECT_NE((*ModelSource::open(folder_.path()))->identity(), before);
}

TEST_F(Divided, a_missing_file_and_a_missing_tensor_are_named) {
  using testing::HasSubstr;
  const std::string second = folder_.path("model-00002-of-00002.safetensors");
  std::filesystem::rename(second, folder_.path("elsewhere"));
  EXPECT_THAT(error(), HasSubstr("\"model-00002-of-00002.safetensors\" is missing, one of the 2 files"));
  std::filesystem::copy(folder_.path("model-00001-of-00002.safetensors"), second);
  EXPECT_THAT(error(), HasSubstr("which the index says is here"));
}

TEST_F(Divided, an_index_is_not_trusted) {
  using testing::HasSubstr;
  for (const char* text : {"", "[]", "{}", R"({"weight_map": {}})", R"({"weight_map": []})"}) {
    write_index(text);
    EXPECT_THAT(error(), HasSubstr("index.json")) << text;
  }
  for (const char* file :
       {"3", R"("../secret.safetensors")", R"("/etc/passwd")", R"("a\u0000.safetensors")", R"("x.bin")"}) {
    write_index(std::string(R"({"weight_map": {"t": )") + file + "}}");
    EXPECT_THAT(error(), HasSubstr("tensor \"t\" is in no .safetensors file")) << file;
  }
}

TEST(HfConfig, keys_of_the_text_part_come_first) {
  const auto c =
      HfConfig::parse(R"({"model_type": "both", "eos_token_id": 7, "quantization_config": {"bits": 4},
                                     "text_config": {"model_type": "text", "rope": {"theta": 5}}})",
                      "config.json");
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(*c->get_string("model_type"), "text");
  EXPECT_EQ(*c->get_int("eos_token_id"), 7);
  EXPECT_EQ(*c->get_int("rope.theta"), 5);
  EXPECT_TRUE(c->has("quantization_config"));
  const auto flat = HfConfig::parse(R"({"model_type": "one", "text_config": null})", "config.json");
  ASSERT_TRUE(flat.ok());
  EXPECT_EQ(*flat->get_string("model_type"), "one");
}

}  // namespace
}  // namespace invar
