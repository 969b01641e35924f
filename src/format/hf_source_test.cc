#include <gtest/gtest.h>

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

}  // namespace
}  // namespace invar
