#pragma once
// The tiny models below test/data/oracles that whole families are tested on. A new family adds its rows here,
// and every test that holds for all of them picks them up: oracles, crowds, threads, instruction sets,
// schedules.

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace invar {

struct OracleModel {
  const char* family;  // row of the family table
  const char* path;    // file or folder with float weights; "made/...": see made_models.h
  const char* golden;  // stem of the golden pair
};

inline constexpr OracleModel kOracleModels[] = {
    {"gemma", "models/gemma-geglu", "models/gemma-geglu/golden"},
    {"gemma", "gguf/lossless/gemma-geglu.gguf", "models/gemma-geglu/golden"},
    {"gemma2", "models/gemma2-softcap", "models/gemma2-softcap/golden"},
    {"gemma2", "models/gemma2-std", "models/gemma2-std/golden"},
    {"gemma2", "gguf/lossless/gemma2-std.gguf", "models/gemma2-std/golden"},
    {"gemma3", "gguf/lossless/gemma3-text-270m-shape.gguf", "models/gemma3-text-270m-shape/golden"},
    {"gemma3_text", "models/gemma3-text", "models/gemma3-text/golden"},
    {"gemma3_text", "models/gemma3-text-270m-shape", "models/gemma3-text-270m-shape/golden"},
    {"gemma3n_text", "models/gemma3n-text", "models/gemma3n-text/golden"},
    {"gemma3n", "made/gemma3n-text.gguf", "models/gemma3n-text/golden"},
    {"gemma4", "gguf/lossless/gemma4-12b-style.gguf", "models/gemma4-12b-style/golden"},
    {"gemma4", "gguf/lossless/gemma4-moe-26b-style.gguf", "models/gemma4-moe-26b-style/golden"},
    {"gemma4_text", "models/gemma4-e2b-style", "models/gemma4-e2b-style/golden"},
    {"gemma4_text", "models/gemma4-e2b-std-nested", "models/gemma4-e2b-std-nested/golden"},
    {"gemma4_text", "models/gemma4-moe-26b-style", "models/gemma4-moe-26b-style/golden"},
    {"gemma4_text", "models/gemma4-12b-style", "models/gemma4-12b-style/golden"},
    {"glm4", "models/glm4-sandwich", "models/glm4-sandwich/golden"},
    {"glm4", "gguf/lossless/glm4-sandwich.gguf", "models/glm4-sandwich/golden"},
    {"glm4_moe", "models/glm4-moe", "models/glm4-moe/golden"},
    {"glm4moe", "gguf/lossless/glm4-moe.gguf", "models/glm4-moe/golden"},
    {"gpt-oss", "gguf/lossless/gpt-oss-yarn-rounded.gguf", "models/gpt-oss-yarn-rounded/golden"},
    {"gpt_oss", "models/gpt-oss-yarn-rounded", "models/gpt-oss-yarn-rounded/golden"},
    {"granite", "models/granite-multipliers", "models/granite-multipliers/golden"},
    {"granite", "gguf/lossless/granite-multipliers.gguf", "models/granite-multipliers/golden"},
    {"llama", "models/llama-untied", "models/llama-untied/golden"},
    {"llama", "models/llama-linear-bias", "models/llama-linear-bias/golden"},
    {"llama", "models/llama-q256", "models/llama-q256/golden"},
    {"llama", "models/llama-tied-rope-llama3", "models/llama-tied-rope-llama3/golden"},
    {"llama", "models/llama-yarn", "models/llama-yarn/golden"},
    {"llama", "gguf/lossless/llama-tied-rope-llama3.gguf", "models/llama-tied-rope-llama3/golden"},
    {"llama", "gguf/lossless/llama-untied.gguf", "models/llama-untied/golden"},
    {"llama", "gguf/lossless/mixtral.gguf", "models/mixtral/golden"},
    {"llama", "made/mixtral-separate.gguf", "models/mixtral/golden"},
    {"minicpm", "models/minicpm-scaled", "models/minicpm-scaled/golden"},
    {"minicpm", "gguf/lossless/minicpm-scaled.gguf", "models/minicpm-scaled/golden"},
    {"mistral", "models/mistral-swa", "models/mistral-swa/golden"},
    {"mixtral", "models/mixtral", "models/mixtral/golden"},
    {"olmo2", "models/olmo2-postnorm", "models/olmo2-postnorm/golden"},
    {"olmo2", "gguf/lossless/olmo2-postnorm.gguf", "models/olmo2-postnorm/golden"},
    {"olmo3", "models/olmo3-swa", "models/olmo3-swa/golden"},
    {"phi3", "models/phi3-longrope", "models/phi3-longrope/golden"},
    {"phi3", "gguf/lossless/phi3-longrope.gguf", "models/phi3-longrope/golden"},
    {"qwen2", "models/qwen2-bias", "models/qwen2-bias/golden"},
    {"qwen2", "models/qwen2-swa", "models/qwen2-swa/golden"},
    {"qwen2", "gguf/lossless/qwen2-bias.gguf", "models/qwen2-bias/golden"},
    {"qwen2_moe", "models/qwen2-moe-shared", "models/qwen2-moe-shared/golden"},
    {"qwen2moe", "gguf/lossless/qwen2-moe-shared.gguf", "models/qwen2-moe-shared/golden"},
    {"qwen3", "models/qwen3-qknorm", "models/qwen3-qknorm/golden"},
    {"qwen3", "gguf/lossless/qwen3-qknorm.gguf", "models/qwen3-qknorm/golden"},
    {"qwen3_moe", "models/qwen3-moe", "models/qwen3-moe/golden"},
    {"qwen3_moe", "models/qwen3-moe-nonorm", "models/qwen3-moe-nonorm/golden"},
    {"qwen3moe", "gguf/lossless/qwen3-moe.gguf", "models/qwen3-moe/golden"},
    {"smollm3", "models/smollm3-nope", "models/smollm3-nope/golden"},
    {"smollm3", "gguf/lossless/smollm3-nope.gguf", "models/smollm3-nope/golden"},
    {"starcoder2", "models/starcoder2-layernorm", "models/starcoder2-layernorm/golden"},
    {"starcoder2", "gguf/lossless/starcoder2-layernorm.gguf", "models/starcoder2-layernorm/golden"},
};

// Some of them say that they were trained for less, which no arithmetic depends on.
inline constexpr int32_t kTestedContext = 512;

// The first of every family; once where a family has another name in GGUF files and the same model.
inline std::vector<OracleModel> family_models() {
  std::vector<OracleModel> first;
  std::set<std::string_view> families, goldens;
  for (const OracleModel& model : kOracleModels)
    if (families.insert(model.family).second && goldens.insert(model.golden).second) first.push_back(model);
  return first;
}

// A path as part of a test's name.
inline std::string oracle_test_name(std::string path) {
  for (char& c : path)
    if (!isalnum(static_cast<unsigned char>(c))) c = '_';
  return path;
}

}  // namespace invar
