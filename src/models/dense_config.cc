#include "models/dense_config.h"

#include <fmt/format.h>

#include <cmath>

#include "models/dense_keys.h"

namespace invar {

Status check_size(const char* key, int64_t value, int64_t most, int32_t* out) {
  if (value < 1 || value > most)
    return corrupt(fmt::format("{} is {}, not between 1 and {}", key, value, most));
  *out = static_cast<int32_t>(value);
  return {};
}

Status check_factor(const char* key, double value, float* out) {
  if (!(value > 0x1p-60 && value < 0x1p60))
    return corrupt(fmt::format("{} is {}, not a positive factor", key, value));
  *out = static_cast<float>(value);
  return {};
}

Status check_shape(const ModelConfig& c) {
  if (c.heads % c.kv_heads != 0)
    return corrupt(
        fmt::format("{} attention heads are no multiple of {} key/value heads", c.heads, c.kv_heads));
  if (c.head_dim % 2 != 0) return corrupt(fmt::format("the head dimension {} is odd", c.head_dim));
  if (int64_t{c.heads} * c.head_dim > kMaxWidth)
    return corrupt(fmt::format("{} heads of dimension {} are more than {}", c.heads, c.head_dim, kMaxWidth));
  if (!(c.norm_eps >= 0 && c.norm_eps <= 1))
    return corrupt(fmt::format("the epsilon of the norms is {}", c.norm_eps));
  return {};
}

Result<ModelConfig> parse_dense(const ModelSource& source, const DenseRules& rules) {
  Result<ModelConfig> config =
      source.kind() == SourceKind::kGguf ? parse_gguf_dense(source, rules) : parse_hf_dense(source, rules);
  if (!config.ok()) return config.status().with_context(source.path());
  // Before anything is built by the number of layers.
  if (static_cast<size_t>(config->layers) > source.tensors().size())
    return corrupt(fmt::format("{}: {} layers, but only {} tensors", source.path(), config->layers,
                               source.tensors().size()));
  config->layer_norm = rules.layer_norm;
  if (config->attention_scale == 0)
    config->attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config->head_dim)));
  config->rotates.assign(static_cast<size_t>(config->layers), true);
  return config;
}

}  // namespace invar
