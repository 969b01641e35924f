// Folders written as GGUF: the file gives every bit of the folder's logits, and holds what the file that
// another program wrote from the same folder holds.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "cli/convert/convert.h"
#include "cli/convert/gguf_tokenizer.h"
#include "cli/text_setup.h"
#include "format/gguf.h"
#include "golden.h"
#include "model_runner.h"
#include "oracle_models.h"

namespace invar {
namespace {

using testing::HasSubstr;

std::string written_path(const std::string& name) {
  return testing::TempDir() + "converted-" + oracle_test_name(name) + ".gguf";
}

Result<Conversion> convert(const std::string& folder, const std::string& to, const char* type = nullptr) {
  ASSIGN_OR_RETURN(const auto source, ModelSource::open(folder));
  return convert_model(*source, to, {.type = type == nullptr ? nullptr : find_encoder(type)});
}

// Folders whose configuration GGUF has no words for, and which part of the refusal says so.
const std::map<std::string, std::string> kRefused = {
    {"models/gemma3n-text", "no form of gemma3n_text"},
    {"models/mistral-swa", "a reader says: llama.attention.sliding_window"},
    {"models/olmo3-swa", "rotary frequencies"},
    {"models/gemma2-softcap", "mathematics at layers.0.attn"},
    {"models/gemma3-text", "mathematics at layers.0.attn"},
};

class FolderAsGguf : public testing::TestWithParam<OracleModel> {};

TEST_P(FolderAsGguf, gives_every_bit_of_the_folder_or_says_why_not) {
  const std::string folder = oracle_path(GetParam().path), path = written_path(GetParam().path);
  for (const char* type : {static_cast<const char*>(nullptr), "F32"}) {
    const auto done = convert(folder, path, type);
    if (const auto refused = kRefused.find(GetParam().path); refused != kRefused.end()) {
      ASSERT_FALSE(done.ok());
      EXPECT_THAT(done.status().message(), HasSubstr(refused->second));
      EXPECT_FALSE(std::filesystem::exists(path));
      continue;
    }
    ASSERT_TRUE(done.ok()) << done.status().message();
    EXPECT_EQ(logits_of(path), logits_of(folder)) << (type == nullptr ? "as it is" : type);
    std::remove(path.c_str());
  }
}

std::vector<OracleModel> folders() {
  std::vector<OracleModel> found;
  for (const OracleModel& m : kOracleModels)
    if (!std::string_view(m.path).ends_with(".gguf")) found.push_back(m);
  return found;
}
INSTANTIATE_TEST_SUITE_P(Models, FolderAsGguf, testing::ValuesIn(folders()),
                         [](const auto& info) { return oracle_test_name(info.param.path); });

// What the file says beyond the model (names, sizes in words) and what a folder without a SentencePiece file
// cannot give.
bool is_told_otherwise(std::string_view key) {
  for (const char* part : {"general.name", "general.finetune", "general.basename", "general.size_label",
                           "tokenizer.ggml.scores", "tokenizer.ggml.add_sep_token"})
    if (key == part) return true;
  return false;
}

std::vector<float> floats_of(const GgufTensor& t) {
  std::vector<float> x(t.data.size() / 4);
  std::memcpy(x.data(), t.data.data(), t.data.size());
  return x;
}

class OtherProgramsFile : public testing::TestWithParam<OracleModel> {};

TEST_P(OtherProgramsFile, is_what_convert_writes) {
  const std::string name = std::filesystem::path(GetParam().golden).parent_path().filename();
  const std::string path = written_path("twin-" + name);
  const auto done = convert(oracle_path("models/" + name), path);
  ASSERT_TRUE(done.ok()) << done.status().message();
  const auto ours = ModelSource::open(path), theirs = ModelSource::open(oracle_path(GetParam().path));
  ASSERT_TRUE(ours.ok() && theirs.ok());
  const GgufFile &a = *(*ours)->gguf(), &b = *(*theirs)->gguf();
  for (const GgufEntry& e : b.entries()) {
    if (is_told_otherwise(e.key)) continue;
    const GgufEntry* mine = a.find(e.key);
    if (mine == nullptr) {
      // Our reader takes these for granted, as the other ones do.
      EXPECT_TRUE(e.key.ends_with("_scale")) << e.key;
      continue;
    }
    EXPECT_EQ(mine->type, e.type) << e.key;
    EXPECT_EQ(mine->count, e.count) << e.key;
    EXPECT_TRUE(std::ranges::equal(mine->bytes, e.bytes)) << e.key;
  }
  std::map<std::string_view, const GgufTensor*> tensors;
  for (const GgufTensor& t : a.tensors())
    tensors[t.name] = &t;
  EXPECT_EQ(a.tensors().size(), b.tensors().size());
  for (const GgufTensor& t : b.tensors()) {
    ASSERT_TRUE(tensors.contains(t.name)) << t.name;
    const GgufTensor& mine = *tensors[t.name];
    EXPECT_STREQ(mine.type->name, t.type->name) << t.name;
    EXPECT_EQ(mine.shape, t.shape) << t.name;
    if (t.name != "rope_freqs.weight") {
      EXPECT_TRUE(std::ranges::equal(mine.data, t.data)) << t.name;
      continue;
    }
    const std::vector<float> x = floats_of(mine), y = floats_of(t);
    for (size_t i = 0; i < x.size(); ++i)  // ours give the folder's frequencies to the bit
      EXPECT_NEAR(x[i] / y[i], 1, 1e-6) << t.name << " " << i;
  }
  std::remove(path.c_str());
}

std::vector<OracleModel> gguf_files() {
  std::vector<OracleModel> found;
  for (const OracleModel& m : kOracleModels)
    if (std::string_view(m.path).starts_with("gguf/"))
      found.push_back(m);  // made ones are not of other programs
  return found;
}
INSTANTIATE_TEST_SUITE_P(Models, OtherProgramsFile, testing::ValuesIn(gguf_files()),
                         [](const auto& info) { return oracle_test_name(info.param.path); });

// How far apart two rows of logits are, relative to their size.
double distance(const std::vector<float>& x, const std::vector<float>& y) {
  double apart = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    apart += double(x[i] - y[i]) * double(x[i] - y[i]);
    size += double(x[i]) * double(x[i]);
  }
  return std::sqrt(apart / size);
}

// Matrices that GGUF has no type for are written as floats without loss, or quantized anew. Those of codes
// meet activations of 8 bits in the folder, which those of floats do not.
TEST(FolderAsGguf, quantized_folders_keep_their_weights) {
  const struct {
    const char* folder;
    bool same_arithmetic;
  } kCases[] = {{"mlx/llama-q256-q4g32", false}, {"mlx/qwen3-q256-q4g64", false},
                {"mlx/llama-q256-mixed", false}, {"mlx/qwen3-moe-q4g32", false},
                {"quantized/llama-gptq", false}, {"quantized/llama-gptq-sym", false},
                {"quantized/llama-awq", false},  {"mlx/llama-q256-mxfp4", true},
                {"mlx/llama-q256-mxfp8", true},  {"quantized/llama-fp8", true}};
  for (const auto& c : kCases) {
    const std::string path = written_path(c.folder), folder = oracle_path(c.folder);
    const auto done = convert(folder, path);
    ASSERT_TRUE(done.ok()) << c.folder << ": " << done.status().message();
    const std::vector<float> x = logits_of(folder), y = logits_of(path);
    if (c.same_arithmetic)
      EXPECT_EQ(x, y) << c.folder;
    else
      EXPECT_LT(distance(x, y), 0.05) << c.folder;
    const auto small = convert(folder, path, "Q8_0");
    ASSERT_TRUE(small.ok()) << c.folder << ": " << small.status().message();
    EXPECT_LE(small->bytes_after, done->bytes_after) << c.folder;
    EXPECT_LT(distance(x, logits_of(path)), 0.1) << c.folder;
    std::remove(path.c_str());
  }
}

TEST(GgufAsGguf, types_that_a_file_has_in_two_tensors_become_others) {
  const std::string source = oracle_path("quantized/llama-nvfp4.gguf"), path = written_path("nvfp4");
  const std::vector<float> wanted = logits_of(source);
  for (const char* type : {static_cast<const char*>(nullptr), "F32", "Q8_0"}) {
    const auto done = convert(source, path, type);
    ASSERT_TRUE(done.ok()) << done.status().message();
    const std::vector<float> got = logits_of(path);
    double apart = 0, size = 0;
    for (size_t i = 0; i < wanted.size(); ++i)
      apart += std::pow(double(wanted[i]) - got[i], 2), size += std::pow(double(wanted[i]), 2);
    // Weights of F32 meet activations that are not rounded.
    EXPECT_LT(std::sqrt(apart / size), 0.08) << (type ? type : "as it is");
  }
}

TEST(FolderAsGguf, a_ramp_that_gguf_does_not_have_is_refused) {
  const auto done = convert(oracle_path("models/gpt-oss-mxfp4"), written_path("gpt-oss"));
  ASSERT_FALSE(done.ok());
  EXPECT_THAT(done.status().message(), HasSubstr("rotary frequencies"));
}

TEST(FolderAsGguf, text_and_ends_of_answers_are_those_of_the_folder) {
  for (const char* name : {"llama-untied", "qwen3-qknorm", "granite-multipliers", "gemma3-text-270m-shape",
                           "mixtral", "phi3-longrope"}) {
    const std::string path = written_path(std::string("text-") + name),
                      folder = oracle_path(std::string("models/") + name);
    ASSERT_TRUE(convert(folder, path).ok()) << name;
    const auto a = ModelSource::open(folder), b = ModelSource::open(path);
    const auto x = set_up_text(**a), y = set_up_text(**b);
    ASSERT_TRUE(x.ok() && y.ok()) << name << y.status().message();
    EXPECT_EQ(x->stop_ids, y->stop_ids) << name;
    const std::vector<ChatMessage> chat = {{"user", "Hello 123,  world"}};
    const auto p = encode_chat(*x, chat), q = encode_chat(*y, chat);
    ASSERT_TRUE(p.ok() && q.ok()) << name;
    EXPECT_EQ(*p, *q) << name;
    std::remove(path.c_str());
  }
}

TEST(FolderAsGguf, a_tokenizer_without_a_name_in_gguf_is_refused) {
  namespace fs = std::filesystem;
  const fs::path folder = testing::TempDir() + "convert-odd-tokenizer";
  fs::remove_all(folder);
  fs::create_directories(folder);
  for (const char* file : {"config.json", "model.safetensors", "tokenizer_config.json"})
    fs::copy(oracle_path("models/llama-untied/") + file, folder / file);
  std::ifstream in(oracle_path("models/llama-untied/tokenizer.json"));
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const auto refusal = [&](std::string from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    std::ofstream(folder / "tokenizer.json") << changed;
    const auto done = convert(folder, written_path("odd"));
    return done.ok() ? "was written" : done.status().message();
  };
  EXPECT_THAT(refusal("\\\\p{N}{1,3}", "\\\\p{N}{1,4}"), HasSubstr("no name known here"));
  EXPECT_THAT(refusal("\"ignore_merges\":true", "\"ignore_merges\":false"), HasSubstr("was written"));
  EXPECT_FALSE(fs::exists(written_path("odd") + ".tmp"));
  std::remove(written_path("odd").c_str());
  fs::remove_all(folder);
}

}  // namespace
}  // namespace invar
