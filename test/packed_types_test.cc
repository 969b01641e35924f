// Packed models in another type: they give the bits of the GGUF file and of the MLX folder that convert
// writes with that type, whatever format they are made of, and say that they are another model.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "cli/convert/convert.h"
#include "cli/convert/mlx_folder.h"
#include "cli/convert/quantized_source.h"
#include "format/model_digest.h"
#include "format/test_files.h"
#include "golden.h"
#include "made_models.h"
#include "model_runner.h"
#include "models/packed_model.h"
#include "oracle_models.h"

namespace invar {
namespace {

using testing::HasSubstr;

std::string source_path(const std::string& name) {
  static MadeModels made(oracle_path(""));
  return name.starts_with("made/") ? made.path(name.substr(5)) : oracle_path(name);
}

// type: nullptr: MLX-4.
Result<Conversion> pack(const std::string& from, const std::string& to, const char* type) {
  ASSIGN_OR_RETURN(const auto source, ModelSource::open(from));
  const BlockEncoder* encoder = type == nullptr ? nullptr : find_encoder(type);
  ASSIGN_OR_RETURN(const auto quantized, QuantizedSource::make(*source, to, {.type = encoder, .threads = 2}));
  const LoadOptions options{.cache_dir = "", .threads = 2, .progress = false};
  RETURN_IF_ERROR(write_packed_model(*quantized, to, options, quantized->change()).status());
  return quantized->conversion();
}

Result<Conversion> write_gguf(const std::string& from, const std::string& to, const char* type) {
  ASSIGN_OR_RETURN(const auto source, ModelSource::open(from));
  return convert_model(*source, to, {.type = find_encoder(type), .threads = 2});
}

class PackedTypes : public testing::TestWithParam<std::string> {
 protected:
  const TemporaryFolder folder_;
  const std::string from_ = source_path(GetParam()), packed_ = folder_.path("model.packed");
};

TEST_P(PackedTypes, give_the_bits_of_the_gguf_file) {
  std::set<std::string> digests;
  for (const BlockEncoder& encoder : block_encoders()) {
    const auto done = pack(from_, packed_, encoder.type);
    ASSERT_TRUE(done.ok()) << encoder.type << ": " << done.status().message();
    const std::vector<float> logits = logits_of(packed_);
    const auto model = ModelSource::open(packed_);
    ASSERT_TRUE(model.ok());
    digests.insert((*model)->packed()->digest);
    digests.insert((*model)->identity());
    // What GGUF has no type for stays where it is small enough.
    if (std::ranges::any_of(
            done->types, [](const auto& entry) { return weight_type_by_name(entry.first)->ggml_type < 0; }))
      continue;
    // Some folders have no GGUF form.
    const auto written = write_gguf(from_, folder_.path("model.gguf"), encoder.type);
    if (!written.ok()) {
      EXPECT_EQ(written.status().code(), Code::kUnsupported) << written.status().message();
      continue;
    }
    EXPECT_TRUE(same_bits(logits, logits_of(folder_.path("model.gguf")))) << encoder.type;
  }
  EXPECT_EQ(digests.size(), 2 * block_encoders().size());
}

TEST_P(PackedTypes, give_the_bits_of_the_mlx_folder) {
  const auto done = pack(from_, packed_, nullptr);
  ASSERT_TRUE(done.ok()) << done.status().message();
  const std::vector<float> logits = logits_of(packed_);
  EXPECT_FALSE(same_bits(logits, logits_of(from_)));
  const auto source = ModelSource::open(from_);
  ASSERT_TRUE(source.ok());
  const auto written = convert_to_mlx(**source, folder_.path("mlx"), {.threads = 2});
  if (!written.ok()) {
    EXPECT_THAT(written.status().message(), HasSubstr("--packed --type MLX-4"));
    return;
  }
  EXPECT_TRUE(same_bits(logits, logits_of(folder_.path("mlx"))));
}

std::vector<std::string> all_models() {
  std::vector<std::string> names;
  for (const OracleModel& m : kOracleModels)
    names.emplace_back(m.path);
  for (const char* name :
       {"gguf/quant/llama-q256-Q8_0.gguf", "gguf/quant/llama-q256-Q5_K.gguf", "quantized/llama-fp8"})
    names.emplace_back(name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Models, PackedTypes, testing::ValuesIn(all_models()),
                         [](const auto& info) { return oracle_test_name(info.param); });

// Of mixtures whose experts stand in one tensor, transposed or not, no MLX folder is written: the GGUF twin
// of the same numbers has them in another order.
TEST(PackedMlx, is_the_same_of_a_folder_and_of_its_gguf_twin) {
  const TemporaryFolder folder;
  for (const OracleModel& m : kOracleModels) {
    if (!std::string_view(m.path).starts_with("gguf/")) continue;
    const std::string twin = std::filesystem::path(m.golden).parent_path().string();
    ASSERT_TRUE(pack(oracle_path(m.path), folder.path("a.packed"), nullptr).ok()) << m.path;
    ASSERT_TRUE(pack(oracle_path(twin), folder.path("b.packed"), nullptr).ok()) << twin;
    EXPECT_TRUE(same_bits(logits_of(folder.path("a.packed")), logits_of(folder.path("b.packed")))) << twin;
  }
}

TEST(PackedMlx, quantizes_stacks_of_experts) {
  const TemporaryFolder folder;
  for (const char* name : {"models/gpt-oss-yarn-rounded", "models/gemma4-moe-26b-style"}) {
    ASSERT_TRUE(pack(oracle_path(name), folder.path("m.packed"), nullptr).ok()) << name;
    const auto source = ModelSource::open(folder.path("m.packed"));
    ASSERT_TRUE(source.ok());
    int stacks = 0;
    for (const SourceTensor& t : (*source)->tensors())
      if (t.shape.size() == 3) stacks += t.type->name == std::string_view("MLX4_BF16");
    EXPECT_GT(stacks, 0) << name;
  }
}

// GPTQ, AWQ, MLX and MXFP4 hold less than the types asked for, which GGUF cannot say of all of them.
TEST(PackedTypes, keep_what_the_source_holds_in_as_few_bits) {
  const TemporaryFolder folder;
  const std::pair<const char*, const char*> kCases[] = {
      {"mlx/qwen3-q256-q4g64", "Q8_0"},  {"mlx/qwen3-q256-q4g64", "Q4_K"},
      {"mlx/qwen3-q256-q4g64", nullptr}, {"mlx/qwen3-moe-q4g32", "Q8_0"},
      {"mlx/llama-q256-mxfp4", nullptr}, {"mlx/llama-q256-mxfp4", "Q4_0"},
      {"mlx/llama-q256-mxfp8", "Q8_0"},  {"gguf/quant/llama-q256-Q4_0.gguf", nullptr}};
  for (const auto& [name, type] : kCases) {
    const auto done = pack(oracle_path(name), folder.path("m.packed"), type);
    ASSERT_TRUE(done.ok()) << name << ": " << done.status().message();
    EXPECT_EQ(done->bytes_after, done->bytes_before) << name;
    EXPECT_TRUE(same_bits(logits_of(folder.path("m.packed")), logits_of(oracle_path(name)))) << name;
  }
  for (const char* name : {"quantized/llama-gptq", "quantized/llama-awq", "quantized/llama-gptq-sym"}) {
    const auto done = pack(oracle_path(name), folder.path("m.packed"), "Q8_0");
    ASSERT_TRUE(done.ok()) << name << ": " << done.status().message();
    EXPECT_EQ(done->types.count("Q8_0"), 1u) << name << ": the embedding";
    EXPECT_EQ(done->types.at("Q8_0"), 1) << name;
  }
}

TEST(PackedTypes, quantize_again_what_has_more_bits) {
  const TemporaryFolder folder;
  const std::pair<const char*, const char*> kCases[] = {{"mlx/llama-q256-mxfp8", nullptr},
                                                        {"mlx/llama-q256-q4g32", nullptr},
                                                        {"quantized/llama-fp8-rows", "Q4_0"},
                                                        {"mlx/qwen3-moe-q4g32", "Q4_0"}};
  for (const auto& [name, type] : kCases) {
    const auto done = pack(oracle_path(name), folder.path("m.packed"), type);
    ASSERT_TRUE(done.ok()) << name << ": " << done.status().message();
    EXPECT_LT(done->bytes_after, done->bytes_before) << name;
    EXPECT_FALSE(same_bits(logits_of(folder.path("m.packed")), logits_of(oracle_path(name)))) << name;
  }
}

TEST(PackedTypes, are_a_function_of_source_and_type) {
  const TemporaryFolder folder;
  const std::string from = oracle_path("models/llama-q256");
  for (const char* name : {"a.packed", "b.packed"})
    ASSERT_TRUE(pack(from, folder.path(name), "Q4_K").ok());
  EXPECT_EQ(read_file(folder.path("a.packed")), read_file(folder.path("b.packed")));
  const auto source = ModelSource::open(from), packed = ModelSource::open(folder.path("a.packed"));
  ASSERT_TRUE(source.ok() && packed.ok());
  EXPECT_EQ((*packed)->packed()->digest,
            changed_digest(*model_digest(**source, ""), "quantized to Q4_K, rules 1"));
  EXPECT_NE((*packed)->identity(), (*source)->identity());
  EXPECT_EQ((*packed)->name(), "llama-q256");
  // Nothing else is left beside it.
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_EQ(entry.path().extension(), ".packed") << entry.path();
}

TEST(PackedTypes, say_what_they_refuse) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& from, const char* type) {
    const auto done = pack(from, folder.path("m.packed"), type);
    EXPECT_FALSE(std::filesystem::exists(folder.path("m.packed")));
    return done.ok() ? "was written" : done.status().message();
  };
  // Interleaved experts in codes are known by their type.
  EXPECT_THAT(refusal(oracle_path("models/gpt-oss-mxfp4"), "F32"),
              HasSubstr("how its experts lie goes with their type"));
  namespace fs = std::filesystem;
  fs::copy(oracle_path("models/llama-untied"), folder.path("nan"));
  std::vector<std::byte> weights = read_file(folder.path("nan/model.safetensors"));
  const auto half = weights.begin() + std::ptrdiff_t(weights.size() / 2);
  std::fill(half, half + 4, std::byte{0xff});
  write_file(folder.path("nan/model.safetensors"), weights);
  EXPECT_THAT(refusal(folder.path("nan"), "Q8_0"), HasSubstr("holds NaN or infinity"));
  EXPECT_THAT(refusal(folder.path("nan"), nullptr), HasSubstr("holds NaN or infinity"));
  const auto source = ModelSource::open(oracle_path("models/llama-untied"));
  ASSERT_TRUE(source.ok());
  EXPECT_THAT(QuantizedSource::make(**source, folder.path("none/m.packed"), {}).status().message(),
              HasSubstr("none/m.packed: cannot get"));
}

}  // namespace
}  // namespace invar
