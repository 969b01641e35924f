#include <fmt/format.h>

#include "base/quote.h"
#include "models/family.h"

namespace invar {

Result<ModelConfig> parse_gemma(const ModelSource& source);
Result<ModelConfig> parse_gemma2(const ModelSource& source);
Result<ModelConfig> parse_gemma3(const ModelSource& source);
Result<ModelConfig> parse_gemma3n(const ModelSource& source);
Result<ModelConfig> parse_gemma4(const ModelSource& source);
Result<ModelConfig> parse_glm4(const ModelSource& source);
Result<ModelConfig> parse_glm4_moe(const ModelSource& source);
Result<ModelConfig> parse_gpt_oss(const ModelSource& source);
Result<ModelConfig> parse_granite(const ModelSource& source);
Result<ModelConfig> parse_llama(const ModelSource& source);
Result<ModelConfig> parse_minicpm(const ModelSource& source);
Result<ModelConfig> parse_mistral(const ModelSource& source);
Result<ModelConfig> parse_mixtral(const ModelSource& source);
Result<ModelConfig> parse_olmo2(const ModelSource& source);
Result<ModelConfig> parse_olmo3(const ModelSource& source);
Result<ModelConfig> parse_phi3(const ModelSource& source);
Result<ModelConfig> parse_qwen2(const ModelSource& source);
Result<ModelConfig> parse_qwen2_moe(const ModelSource& source);
Result<ModelConfig> parse_qwen3(const ModelSource& source);
Result<ModelConfig> parse_qwen3_moe(const ModelSource& source);
Result<ModelConfig> parse_smollm3(const ModelSource& source);
Result<ModelConfig> parse_starcoder2(const ModelSource& source);
Result<Graph> build_gemma(const ModelConfig& config);
Result<Graph> build_gemma2(const ModelConfig& config);
Result<Graph> build_gemma3(const ModelConfig& config);
Result<Graph> build_gemma3n(const ModelConfig& config);
Result<Graph> build_gemma4(const ModelConfig& config);
Result<Graph> build_glm4(const ModelConfig& config);
Result<Graph> build_glm4_moe(const ModelConfig& config);
Result<Graph> build_gpt_oss(const ModelConfig& config);
Result<Graph> build_llama(const ModelConfig& config);
Result<Graph> build_olmo2(const ModelConfig& config);
Result<Graph> build_phi3(const ModelConfig& config);
Result<Graph> build_qwen3(const ModelConfig& config);
Result<Graph> build_smollm3(const ModelConfig& config);
Result<Graph> build_starcoder2(const ModelConfig& config);

namespace {

constexpr Family kFamilies[] = {
    {"gemma", "gemma", false, parse_gemma, build_gemma},
    {"gemma2", "gemma2", false, parse_gemma2, build_gemma2},
    {"gemma3", "gemma3", false, parse_gemma3, build_gemma3},
    {"gemma3_text", "gemma3", false, parse_gemma3, build_gemma3},
    {"gemma3n", nullptr, false, parse_gemma3n, build_gemma3n},
    {"gemma3n_text", nullptr, false, parse_gemma3n, build_gemma3n},
    {"gemma4", "gemma4", false, parse_gemma4, build_gemma4},
    {"gemma4_text", "gemma4", false, parse_gemma4, build_gemma4},
    {"glm4", "glm4", false, parse_glm4, build_glm4},
    {"glm4_moe", "glm4moe", false, parse_glm4_moe, build_glm4_moe},
    {"glm4moe", "glm4moe", false, parse_glm4_moe, build_glm4_moe},
    {"gpt-oss", "gpt-oss", false, parse_gpt_oss, build_gpt_oss},
    {"gpt_oss", "gpt-oss", false, parse_gpt_oss, build_gpt_oss},
    {"granite", "granite", true, parse_granite, build_llama},
    {"llama", "llama", true, parse_llama, build_llama},
    {"minicpm", "minicpm", true, parse_minicpm, build_llama},
    {"mistral", "llama", false, parse_mistral, build_llama},
    {"mixtral", "llama", false, parse_mixtral, build_llama},
    {"olmo2", "olmo2", false, parse_olmo2, build_olmo2},
    {"olmo3", "olmo2", false, parse_olmo3, build_olmo2},
    {"phi3", "phi3", false, parse_phi3, build_phi3},
    {"qwen2", "qwen2", false, parse_qwen2, build_llama},
    {"qwen2_moe", "qwen2moe", false, parse_qwen2_moe, build_llama},
    {"qwen2moe", "qwen2moe", false, parse_qwen2_moe, build_llama},
    {"qwen3", "qwen3", false, parse_qwen3, build_qwen3},
    {"qwen3_moe", "qwen3moe", false, parse_qwen3_moe, build_qwen3},
    {"qwen3moe", "qwen3moe", false, parse_qwen3_moe, build_qwen3},
    {"smollm3", "smollm3", true, parse_smollm3, build_smollm3},
    {"starcoder2", "starcoder2", false, parse_starcoder2, build_starcoder2},
};

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

Result<const Family*> find_family(const ModelSource& source) {
  const std::string wanted = source.architecture();
  std::string known;
  for (const Family& family : kFamilies) {
    if (wanted == family.name) return &family;
    known += (known.empty() ? "" : ", ") + std::string(family.name);
  }
  const char* key = source.kind() == SourceKind::kGguf ? "general.architecture" : "model_type of config.json";
  if (wanted.empty()) return corrupt(fmt::format("{}: {} is missing or not a string", source.path(), key));
  return unsupported(
      fmt::format("{}: {} is {}; this version supports {}", source.path(), key, quote(wanted), known));
}

}  // namespace invar
