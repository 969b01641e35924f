#include "cli/sampling_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "format/test_files.h"
#include "sampling/chain.h"

namespace invar {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A folder whose generation_config.json has this text ("": none).
SamplingDefaults of_folder(const std::string& generation, const SamplingParams& base = {}) {
  const std::string from = std::string(INVAR_TEST_DATA) + "/oracles/models/qwen2-bias";
  const TemporaryFolder folder;
  for (const auto& file : std::filesystem::directory_iterator(from))
    if (file.is_regular_file() && file.path().filename() != "generation_config.json")
      std::filesystem::copy(file.path(), folder.path(file.path().filename().string()));
  if (!generation.empty()) write_file(folder.path("generation_config.json"), generation);
  const auto source = ModelSource::open(folder.path());
  EXPECT_TRUE(source.ok()) << source.status().message();
  return sampling_defaults(**source, base);
}

SamplingDefaults of_gguf(const std::function<void(GgufWriter&)>& add) {
  GgufWriter w;
  w.string("general.architecture", "llama");
  add(w);
  const TemporaryFolder folder;
  const std::string path = folder.path("m.gguf");
  write_file(path, w.build());
  const auto source = ModelSource::open(path);
  EXPECT_TRUE(source.ok()) << source.status().message();
  return sampling_defaults(**source);
}

TEST(SamplingDefaults, of_a_folder_come_from_its_generation_config) {
  const SamplingDefaults d = of_folder(
      R"({"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1, "typical_p": 0.9,
          "repetition_penalty": 1.05, "do_sample": true, "eos_token_id": [1, 2]})");
  EXPECT_EQ(d.params.temperature, 0.6f);
  EXPECT_EQ(d.params.top_k, 20);
  EXPECT_EQ(d.params.top_p, 0.95f);
  EXPECT_EQ(d.params.min_p, 0.1f);
  EXPECT_EQ(d.params.typical_p, 0.9f);
  EXPECT_EQ(d.params.repetition_penalty, 1.05f);
  EXPECT_THAT(d.warnings, IsEmpty());
  EXPECT_THAT(d.taken, HasSubstr("temperature 0.6, top_p 0.95"));
}

TEST(SamplingDefaults, what_is_not_said_stays_as_it_was) {
  const SamplingDefaults d = of_folder(R"({"top_k": null})", {.temperature = 0.7f, .top_k = 3});
  EXPECT_EQ(d.params.temperature, 0.7f);
  EXPECT_EQ(d.params.top_k, 3);
  EXPECT_EQ(d.taken, "");
  EXPECT_EQ(of_folder("", {.temperature = 0.25f}).params.temperature, 0.25f);
}

TEST(SamplingDefaults, wrong_values_are_ignored_one_by_one_and_named) {
  const SamplingDefaults d = of_folder(
      R"({"temperature": -1, "top_p": "high", "top_k": 2.5, "min_p": 7, "repetition_penalty": 1.1})");
  EXPECT_EQ(d.params.temperature, 1.0f);
  EXPECT_EQ(d.params.top_p, 1.0f);
  EXPECT_EQ(d.params.top_k, 0);
  EXPECT_EQ(d.params.min_p, 0.0f);
  EXPECT_EQ(d.params.repetition_penalty, 1.1f);
  EXPECT_THAT(d.warnings, testing::UnorderedElementsAre(
                              HasSubstr("temperature: -1 is not within 0 and 2; ignored"), HasSubstr("top_p"),
                              HasSubstr("top_k: 2.5 is no whole number"), HasSubstr("min_p: 7")));
  EXPECT_TRUE(d.params.validate(100).ok());
  EXPECT_THAT(of_folder(R"({"top_k": 1e300})").warnings, ElementsAre(HasSubstr("top_k")));
  EXPECT_THAT(of_folder("[1]").warnings, ElementsAre(HasSubstr("generation_config.json")));
}

TEST(SamplingDefaults, of_a_gguf_file_come_from_its_keys) {
  const SamplingDefaults d = of_gguf([](GgufWriter& w) {
    w.f32("general.sampling.temp", 0.8f).u32("general.sampling.top_k", 50);
    w.f32("general.sampling.top_p", 0.9f).f32("general.sampling.min_p", 0.02f);
    w.f32("general.sampling.xtc_probability", 0.5f).f32("general.sampling.xtc_threshold", 0.2f);
    w.u32("general.sampling.penalty_last_n", 64).f32("general.sampling.penalty_repeat", 1.1f);
    w.u32("general.sampling.mirostat", 2).f32("general.sampling.mirostat_tau", 4.0f);
    w.f32("general.sampling.mirostat_eta", 0.2f).string("general.sampling.sequence", "top_k;temperature");
  });
  EXPECT_THAT(d.warnings, IsEmpty());
  EXPECT_EQ(d.params.temperature, 0.8f);
  EXPECT_EQ(d.params.top_k, 50);
  EXPECT_EQ(d.params.top_p, 0.9f);
  EXPECT_EQ(d.params.min_p, 0.02f);
  EXPECT_EQ(d.params.xtc_probability, 0.5f);
  EXPECT_EQ(d.params.xtc_threshold, 0.2f);
  EXPECT_EQ(d.params.penalty_last_n, 64);
  EXPECT_EQ(d.params.repetition_penalty, 1.1f);
  EXPECT_EQ(d.params.mirostat, 2);
  EXPECT_EQ(d.params.mirostat_tau, 4.0f);
  EXPECT_EQ(d.params.mirostat_eta, 0.2f);
  const std::string_view links[] = {"top_k", "temperature"};
  EXPECT_EQ(d.params.chain, *chain_of(links));
}

TEST(SamplingDefaults, hostile_gguf_keys_are_ignored_and_named) {
  const SamplingDefaults d = of_gguf([](GgufWriter& w) {
    w.f32("general.sampling.temp", NAN).f32("general.sampling.top_p", INFINITY);
    w.string("general.sampling.top_k", "many").u32("general.sampling.penalty_last_n", 0xFFFFFFFFu);
    w.u32("general.sampling.mirostat", 3).string("general.sampling.sequence", "top_k;evil\x1b[2J");
  });
  EXPECT_EQ(d.params.temperature, 1.0f);
  EXPECT_EQ(d.params.top_p, 1.0f);
  EXPECT_EQ(d.params.top_k, 0);
  EXPECT_EQ(d.params.penalty_last_n, -1);
  EXPECT_EQ(d.params.mirostat, 0);
  EXPECT_TRUE(d.params.chain.empty());
  EXPECT_EQ(d.warnings.size(), 6u);
  for (const std::string& w : d.warnings) {
    EXPECT_THAT(w, HasSubstr("general.sampling."));
    EXPECT_EQ(w.find('\x1b'), std::string::npos);
  }
  EXPECT_EQ(d.taken, "");
}

}  // namespace
}  // namespace invar
