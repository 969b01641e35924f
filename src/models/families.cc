#include <fmt/format.h>

#include "base/quote.h"
#include "models/family.h"

namespace invar {

Result<ModelConfig> parse_llama(const ModelSource& source);
Result<Graph> build_llama(const ModelConfig& config);
Result<ModelConfig> parse_qwen2(const ModelSource& source);
Result<Graph> build_qwen2(const ModelConfig& config);
Result<ModelConfig> parse_qwen3(const ModelSource& source);
Result<Graph> build_qwen3(const ModelConfig& config);
Result<ModelConfig> parse_smollm3(const ModelSource& source);
Result<Graph> build_smollm3(const ModelConfig& config);

namespace {

constexpr Family kFamilies[] = {
    {"llama", true, parse_llama, build_llama},
    {"qwen2", false, parse_qwen2, build_qwen2},
    {"qwen3", false, parse_qwen3, build_qwen3},
    {"smollm3", true, parse_smollm3, build_smollm3},
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
