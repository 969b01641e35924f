// MiniCPM 1 and 2: the mathematics of Granite under other keys.

#include <cmath>

#include "format/hf_config.h"
#include "models/dense_config.h"
#include "models/dense_keys.h"
#include "models/family.h"
#include "models/layer_windows.h"

namespace invar {
namespace {

// The defaults of the first files, which had no keys.
constexpr double kEmbedding = 12, kDepth = 1.4, kHeadWidth = 256;

void set_factors(double embedding, double depth, double head_width, ModelConfig* c) {
  c->embedding_multiplier = static_cast<float>(embedding);
  c->residual_multiplier = static_cast<float>(depth / std::sqrt(static_cast<double>(c->layers)));
  c->logits_multiplier =
      static_cast<float>(1.0 / static_cast<double>(static_cast<float>(c->hidden / head_width)));
}

Status parse_factors(const ModelSource& source, ModelConfig* c) {
  const auto get = [&](const char* key, double fallback) -> Result<double> {
    ASSIGN_OR_RETURN(const auto value, source.config()->get_double(key));
    const double number = value.value_or(fallback);
    float checked = 0;
    RETURN_IF_ERROR(check_factor(key, number, &checked).with_context(source.path()));
    return number;
  };
  ASSIGN_OR_RETURN(const double embedding, get("scale_emb", 1));
  ASSIGN_OR_RETURN(const double depth, get("scale_depth", 1));
  ASSIGN_OR_RETURN(const double head_width, get("dim_model_base", 1));
  set_factors(embedding, depth, head_width, c);
  return {};
}

}  // namespace

Result<ModelConfig> parse_minicpm(const ModelSource& source) {
  const bool gguf = source.kind() == SourceKind::kGguf;
  ASSIGN_OR_RETURN(ModelConfig c,
                   parse_dense(source, {.bias_keys = false, .multipliers = gguf, .longrope = true}));
  if (!gguf) {
    RETURN_IF_ERROR(parse_factors(source, &c));
  } else if (c.embedding_multiplier == 1 && c.residual_multiplier == 1 && c.logits_multiplier == 1) {
    set_factors(kEmbedding, kDepth, kHeadWidth, &c);
  }
  RETURN_IF_ERROR(parse_windows(source, WindowRule::kNone, &c));
  return c;
}

}  // namespace invar
