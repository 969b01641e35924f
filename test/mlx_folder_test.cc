// Folders written in MLX's layout: the tensors are those that MLX itself wrote from the same weights, and the
// model that is read from them is close to the one it was made of.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/mapped_file.h"
#include "cli/convert/affine_group.h"
#include "cli/convert/mlx_folder.h"
#include "format/safetensors.h"
#include "golden.h"
#include "model_runner.h"
#include "oracle_models.h"
#include "tensor/float16.h"

namespace invar {
namespace {

using testing::HasSubstr;

std::string fresh_folder(const std::string& name) {
  const std::string path = testing::TempDir() + "mlx-" + name;
  std::filesystem::remove_all(path);
  return path;
}

Result<Conversion> convert(const std::string& from, const std::string& to, const MlxOptions& options = {}) {
  ASSIGN_OR_RETURN(const auto source, ModelSource::open(oracle_path(from)));
  return convert_to_mlx(*source, to, options);
}

// but_routers: MLX quantizes them, with 8 bits; here they stay.
void expect_twins(const char* source, const char* twin_folder, bool but_routers) {
  const std::string folder = fresh_folder("twin");
  const auto done = convert(source, folder, {.group = 32});
  ASSERT_TRUE(done.ok()) << done.status().message();
  const auto ours = MappedFile::open(folder + "/model.safetensors"),
             theirs = MappedFile::open(oracle_path(std::string(twin_folder) + "/model.safetensors"));
  ASSERT_TRUE(ours.ok() && theirs.ok());
  const auto a = SafetensorsFile::parse((*ours).bytes(), "ours"),
             b = SafetensorsFile::parse((*theirs).bytes(), "theirs");
  ASSERT_TRUE(a.ok() && b.ok());
  size_t routers = 0;
  for (const SafetensorsTensor& t : a->tensors()) {
    const auto twin = std::find_if(b->tensors().begin(), b->tensors().end(),
                                   [&](const SafetensorsTensor& o) { return o.name == t.name; });
    ASSERT_NE(twin, b->tensors().end()) << t.name;
    if (but_routers && t.name.ends_with("mlp.gate.weight")) {
      EXPECT_STREQ(t.type->name, "BF16");
      ++routers;
      continue;
    }
    EXPECT_STREQ(t.type->name, twin->type->name) << t.name;
    ASSERT_EQ(t.shape, twin->shape) << t.name;
    ASSERT_EQ(t.data.size(), twin->data.size()) << t.name;
    size_t equal = 0;
    for (size_t i = 0; i < t.data.size(); ++i)
      equal += t.data[i] == twin->data[i];
    // MLX finds codes with the scale before it was rounded.
    if (std::string_view(t.type->name) == "U32")
      EXPECT_GT(equal, t.data.size() * 98 / 100) << t.name;
    else
      EXPECT_EQ(equal, t.data.size()) << t.name;
  }
  EXPECT_EQ(a->tensors().size(), b->tensors().size() - 2 * routers) << "but for scales and biases of routers";
  EXPECT_EQ(routers > 0, but_routers);
}

TEST(MlxFolder, has_the_tensors_that_mlx_writes) {
  expect_twins("models/llama-q256", "mlx/llama-q256-q4g32", false);
}

TEST(MlxFolder, stacks_experts_as_mlx_does) {
  expect_twins("models/qwen3-moe", "mlx/qwen3-moe-q4g32", true);
}

TEST(MlxFolder, models_read_from_it_are_close_to_their_source) {
  // Of others: 1.4. Rows of mixtures whose experts nearly tie choose others.
  const std::pair<const char*, double> most_apart[] = {
      {"llama-q256", 0.5}, {"qwen3-qknorm", 0.5}, {"gemma3-text-270m-shape", 0.5}, {"phi3-longrope", 0.5},
      {"mixtral", 0.5},    {"glm4-moe", 0.5},     {"qwen2-moe-shared", 0.9},
  };
  for (const auto& [name, most] : most_apart) {
    const std::string folder = fresh_folder(name), source = std::string("models/") + name;
    const auto done = convert(source, folder);
    ASSERT_TRUE(done.ok()) << name << ": " << done.status().message();
    EXPECT_GT(done->types.at("MLX-4"), 0) << name;
    EXPECT_LT(done->bytes_after, done->bytes_before) << name;
    const std::vector<float> x = logits_of(oracle_path(source)), y = logits_of(folder);
    double apart = 0, size = 0;
    for (size_t i = 0; i < x.size(); ++i)
      apart += std::pow(double(x[i]) - y[i], 2), size += std::pow(double(x[i]), 2);
    EXPECT_LT(std::sqrt(apart / size), most) << name;
    EXPECT_GT(apart, 0) << name;
    std::filesystem::remove_all(folder);
  }
}

TEST(MlxFolder, says_what_it_does_not_write) {
  const auto refusal = [](const std::string& from) {
    const auto done = convert(from, fresh_folder("refused"));
    return done.ok() ? "was written" : done.status().message();
  };
  for (const char* name : {"models/gpt-oss-yarn-rounded", "models/gemma4-moe-26b-style"})
    EXPECT_THAT(refusal(name), HasSubstr("holds several matrices"));
  EXPECT_THAT(refusal("mlx/llama-q256-q4g32"), HasSubstr("is written from F32, F16 and BF16"));
  EXPECT_THAT(refusal("gguf/lossless/llama-untied.gguf"), HasSubstr("from the folder"));
}

TEST(MlxFolder, nothing_of_an_older_model_stays_beside_it) {
  const std::string folder = fresh_folder("older");
  std::filesystem::create_directory(folder);
  for (const char* name :
       {"config.json", "chat_template.jinja", "model.safetensors.index.json", "tokenizer.model", "notes.txt"})
    std::ofstream(folder + "/" + name) << "old";
  ASSERT_TRUE(convert("models/llama-q256", folder).ok());
  EXPECT_FALSE(std::filesystem::exists(folder + "/chat_template.jinja"));
  EXPECT_FALSE(std::filesystem::exists(folder + "/model.safetensors.index.json"));
  EXPECT_FALSE(std::filesystem::exists(folder + "/tokenizer.model"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/notes.txt")) << "is nobody's model";
  EXPECT_TRUE(ModelSource::open(folder).ok());

  // Without room for all of its files, the folder is no model.
  std::filesystem::remove(folder + "/tokenizer.json");
  std::filesystem::create_directory(folder + "/tokenizer.json");
  std::ofstream(folder + "/tokenizer.json/in the way") << "x";
  EXPECT_FALSE(convert("models/llama-q256", folder).ok());
  EXPECT_FALSE(std::filesystem::exists(folder + "/config.json"));
}

TEST(MlxFolder, what_is_refused_leaves_the_old_model) {
  const std::string source = fresh_folder("nan"), folder = fresh_folder("kept");
  std::filesystem::copy(oracle_path("models/llama-q256"), source);
  const std::string file = source + "/model.safetensors";
  const auto bytes = std::filesystem::file_size(file);
  std::fstream(file, std::ios::binary | std::ios::in | std::ios::out).seekp(std::streamoff(bytes / 2))
      << std::string(bytes / 2, char(0xFF));
  ASSERT_TRUE(convert("models/llama-q256", folder).ok());
  const auto bad = ModelSource::open(source);
  ASSERT_TRUE(bad.ok()) << bad.status().message();
  EXPECT_THAT(convert_to_mlx(**bad, folder, {}).status().message(), HasSubstr("holds NaN"));
  EXPECT_TRUE(ModelSource::open(folder).ok());
}

TEST(MlxFolder, experts_of_several_types_are_refused) {
  const std::string folder = fresh_folder("mixed"), file = folder + "/model.safetensors";
  std::filesystem::copy(oracle_path("models/qwen3-moe"), folder);
  std::string bytes;
  {
    const auto map = MappedFile::open(file);
    ASSERT_TRUE(map.ok());
    bytes.assign(reinterpret_cast<const char*>(map->bytes().data()), map->bytes().size());
  }
  const std::string_view before = R"(experts.1.up_proj.weight":{"dtype":"BF16",)";
  const size_t at = bytes.find(before);
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, before.size(), R"(experts.1.up_proj.weight":{"dtype":"F16" ,)");
  std::ofstream(file, std::ios::binary) << bytes;
  const auto source = ModelSource::open(folder);
  ASSERT_TRUE(source.ok()) << source.status().message();
  const auto done = convert_to_mlx(**source, fresh_folder("mixed-target"), {});
  ASSERT_FALSE(done.ok());
  EXPECT_THAT(done.status().message(), HasSubstr("is F16; MLX stacks them into one"));
}

TEST(MlxFolder, codes_are_within_half_a_step_and_the_far_end_is_exact) {
  std::vector<float> w;
  for (int i = 0; i < 64; ++i)
    w.push_back(float((i * 37 + 11) % 64 - 20) * 0.125f);
  AffineGroup g{};
  uint8_t codes[64];
  ASSERT_TRUE(quantize_affine4(w.data(), 64, Dtype::kF16, &g, codes));
  const float scale = f16_to_f32(g.scale), bias = f16_to_f32(g.bias);
  for (int i = 0; i < 64; ++i) {
    ASSERT_LT(codes[i], 16);
    EXPECT_LE(std::abs(scale * float(codes[i]) + bias - w[size_t(i)]), std::abs(scale) * 0.51f) << i;
  }
  EXPECT_EQ(bias, 43 * 0.125f);  // the highest is farther from 0 than the lowest
  const std::vector<float> large(64, 1e6f), zeros(64, 0.0f);
  EXPECT_FALSE(quantize_affine4(large.data(), 64, Dtype::kF16, &g, codes));
  ASSERT_TRUE(quantize_affine4(zeros.data(), 64, Dtype::kBF16, &g, codes));
  EXPECT_EQ(bf16_to_f32(g.scale) * float(codes[5]) + bf16_to_f32(g.bias), 0);
}

}  // namespace
}  // namespace invar
