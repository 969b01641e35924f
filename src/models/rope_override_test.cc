#include "models/rope_override.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "format/test_files.h"
#include "models/model.h"

namespace invar {
namespace {

using ::testing::HasSubstr;

ModelConfig config_of(RopeScaling scaling, int32_t context) {
  ModelConfig config;
  config.context_length = context;
  config.rope_recipe = {10000, 32, std::move(scaling), {}};
  config.rope = *make_rope(*config.rope_recipe);
  return config;
}

RopeOverride override_of(const char* scaling, int32_t context = 0) {
  RopeOverride wanted{.context = context};
  EXPECT_TRUE(parse_rope_rule(scaling, &wanted).ok()) << scaling;
  return wanted;
}

RopeScaling yarn(double factor, double original) {
  return {.rule = RopeRule::kYarn, .factor = factor, .original_context = original};
}

void expect_equal(const Rope& a, const Rope& b) {
  EXPECT_EQ(a.inv_freq, b.inv_freq);
  EXPECT_EQ(a.attention_factor, b.attention_factor);
  EXPECT_EQ(a.scaled, b.scaled);
}

TEST(RopeOverride, yarn_is_what_a_file_with_yarn_says) {
  const ModelConfig file = config_of(yarn(4, 128), 512);
  ModelConfig config = config_of({}, 128);
  ASSERT_TRUE(apply(override_of("yarn:4"), &config).ok());
  expect_equal(config.rope, file.rope);
  EXPECT_EQ(config.context_length, 512);
}

TEST(RopeOverride, the_factor_follows_from_the_context) {
  ModelConfig config = config_of({}, 128);
  ASSERT_TRUE(apply(override_of("yarn", 320), &config).ok());
  expect_equal(config.rope, config_of(yarn(2.5, 128), 320).rope);
  EXPECT_EQ(config.context_length, 320);
  ModelConfig shorter = config_of({}, 128);
  ASSERT_TRUE(apply(override_of("linear", 64), &shorter).ok());
  EXPECT_EQ(shorter.rope.inv_freq, config_of({}, 128).rope.inv_freq);
  EXPECT_EQ(shorter.context_length, 128);
}

TEST(RopeOverride, scaling_of_the_file_is_replaced_and_not_added_to) {
  ModelConfig plain = config_of({}, 128), stretched = config_of(yarn(4, 128), 512);
  ASSERT_TRUE(apply(override_of("none"), &stretched).ok());
  expect_equal(stretched.rope, plain.rope);
  EXPECT_EQ(stretched.context_length, 128);
  ModelConfig linear = config_of({.rule = RopeRule::kLinear, .factor = 4}, 512);
  ASSERT_TRUE(apply(override_of("yarn:2"), &linear).ok());
  expect_equal(linear.rope, config_of(yarn(2, 128), 256).rope);
  EXPECT_EQ(linear.context_length, 256);
}

TEST(RopeOverride, a_base_leaves_the_scaling_alone) {
  ModelConfig config = config_of(yarn(4, 128), 512);
  ASSERT_TRUE(apply({.base = 500000}, &config).ok());
  RopeRecipe expected = *config_of(yarn(4, 128), 512).rope_recipe;
  expected.theta = 500000;
  expect_equal(config.rope, *make_rope(expected));
  EXPECT_EQ(config.context_length, 512);
}

TEST(RopeOverride, refusals_name_the_flag) {
  const auto error = [](const char* text) {
    RopeOverride wanted;
    return parse_rope_rule(text, &wanted).message();
  };
  for (const char* wrong :
       {"", "ntk", "yarn:", "yarn:0.5", "yarn:x", "linear:2y", "yarn:nan", "none:2", "yarn:1e9"})
    EXPECT_THAT(error(wrong), HasSubstr("--rope-scaling")) << wrong;
  ModelConfig config = config_of({}, 128);
  EXPECT_THAT(apply(override_of("yarn"), &config).message(), HasSubstr("yarn:FACTOR, or --ctx N"));
  config.rope_recipe.reset();
  EXPECT_THAT(apply({.base = 2}, &config).message(), HasSubstr("leave them out"));
  RopeScaling longrope{.rule = RopeRule::kLongrope, .factor = 4, .original_context = 32};
  longrope.short_factor.assign(16, 1.0f), longrope.long_factor.assign(16, 2.0f);
  ModelConfig phi = config_of(longrope, 128);
  EXPECT_THAT(apply({.base = 5000}, &phi).message(), HasSubstr("leave them out"));
  EXPECT_THAT(apply(override_of("yarn:4"), &phi).message(), HasSubstr("leave them out"));
}

TEST(RopeOverride, settings_that_answer_alike_have_one_text) {
  EXPECT_EQ(RopeOverride{.context = 4096}.text(), "");
  EXPECT_EQ(override_of("none", 4096).text(), "rope-scaling none");
  EXPECT_EQ(override_of("yarn", 4096).text(), "rope-scaling yarn for 4096");
  EXPECT_EQ(override_of("linear:2.5", 4096).text(), "rope-scaling linear:2.5");
  EXPECT_EQ((RopeOverride{.base = 5e5}.text()), "rope-base 500000");
}

// As docs/models.md says.
TEST(RopeOverride, families_with_ropes_of_their_own_refuse_it) {
  for (const char* name : {"gemma3n-text", "gemma4-e2b-style", "phi3-longrope"}) {
    const auto model = Model::load(INVAR_TEST_DATA "/oracles/models/" + std::string(name),
                                   {.progress = false, .rope = {.base = 5000}});
    ASSERT_FALSE(model.ok()) << name;
    EXPECT_THAT(model.status().message(), HasSubstr("--rope-base and --rope-scaling")) << name;
  }
}

// The tiny Llama with YaRN of the oracles, its scaling given by the flag instead of by the file.
TEST(RopeOverride, reaches_the_graph_of_a_loaded_model) {
  const std::string source = INVAR_TEST_DATA "/oracles/models/llama-yarn";
  const auto bytes = read_file(source + "/config.json");
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t at = text.find("\"rope_scaling\": {"), end = text.find('}', at) + 1;
  ASSERT_NE(at, std::string::npos);
  const auto with = [&](const std::string& scaling, const std::string& context, RopeOverride rope) {
    const TemporaryFolder folder;
    std::filesystem::copy(source + "/model.safetensors", folder.path("model.safetensors"));
    std::string changed = text;
    changed.replace(at, end - at, "\"rope_scaling\": " + scaling);
    const std::string key = "\"max_position_embeddings\": ";
    changed.replace(changed.find(key) + key.size(), 3, context);
    write_file(folder.path("config.json"), changed);
    const auto model = Model::load(folder.path(), {.progress = false, .rope = std::move(rope)});
    EXPECT_TRUE(model.ok()) << model.status().message();
    return (*model)->graph().ropes[0];
  };
  expect_equal(
      with("null", "32 ", override_of("yarn:4")),
      with(R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32})", "128", {}));
}

}  // namespace
}  // namespace invar
