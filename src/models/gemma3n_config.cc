// The keys of Gemma 3n, from config.json or GGUF metadata.

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/fp_environment.h"
#include "format/gguf.h"
#include "format/hf_config.h"
#include "models/dense_config.h"
#include "models/dense_keys.h"
#include "models/family.h"
#include "models/gemma.h"
#include "models/layer_windows.h"
#include "tensor/exact_math.h"

namespace invar {
namespace {

constexpr int64_t kMaxStreams = 16;
constexpr float kMaxDeviations = 6;

// The part of a normal distribution that lies below z, by the series of its density.
double normal_below(double z) {
  double term = z, sum = z;
  for (int n = 1; n < 200; ++n) {
    term = term * (z * z) / (2 * n + 1);
    sum = sum + term;
  }
  return 0.5 + sum * (exp64(-0.5 * (z * z)) * 0x1.9884533d43651p-2);
}

// How many standard deviations above the mean this part of a normal distribution ends.
float deviations_of(double part) {
  double low = -6, high = 6;
  for (int i = 0; i < 80; ++i) {
    const double middle = 0.5 * (low + high);
    (normal_below(middle) < part ? low : high) = middle;
  }
  return static_cast<float>(low);
}

Status read_sparsity(const HfConfig& c, ModelConfig* out) {
  ASSIGN_OR_RETURN(const auto pattern, c.get_doubles("activation_sparsity_pattern"));
  const size_t layers = out->windows.size();
  if (pattern && pattern->size() != layers)
    return corrupt(
        fmt::format("activation_sparsity_pattern has {} numbers for {} layers", pattern->size(), layers));
  const FpEnvironment contract;
  for (size_t l = 0; l < layers; ++l) {
    const double part = pattern ? (*pattern)[l] : layers > 10 && l < 10 ? 0.95 : 0;
    if (!(part >= 0 && part <= 0.999))
      return corrupt(fmt::format("activation_sparsity_pattern has {}, not between 0 and 0.999", part));
    out->altup.gate_deviations.push_back(part > 0 ? std::optional(deviations_of(part)) : std::nullopt);
  }
  return {};
}

Status set_streams(const char* count_key, int64_t count, const char* active_key, int64_t active,
                   ModelConfig* out) {
  RETURN_IF_ERROR(check_size(count_key, count, kMaxStreams, &out->altup.streams));
  if (active < 0 || active >= out->altup.streams)
    return corrupt(fmt::format("{} is {} of {} streams", active_key, active, out->altup.streams));
  out->altup.active = static_cast<int32_t>(active);
  return {};
}

Status read_hf(const HfConfig& c, ModelConfig* out) {
  ASSIGN_OR_RETURN(const auto streams, c.get_int("altup_num_inputs"));
  ASSIGN_OR_RETURN(const auto active, c.get_int("altup_active_idx"));
  ASSIGN_OR_RETURN(const auto scales, c.get_bool("altup_correct_scale"));
  ASSIGN_OR_RETURN(const auto rank, c.get_int("laurel_rank"));
  ASSIGN_OR_RETURN(const auto shared, c.get_int("num_kv_shared_layers"));
  ASSIGN_OR_RETURN(const auto input, c.get_int("hidden_size_per_layer_input"));
  ASSIGN_OR_RETURN(const auto input_vocab, c.get_int("vocab_size_per_layer_input"));
  RETURN_IF_ERROR(
      set_streams("altup_num_inputs", streams.value_or(4), "altup_active_idx", active.value_or(0), out));
  out->altup.scales_correction = scales.value_or(true);
  RETURN_IF_ERROR(check_size("laurel_rank", rank.value_or(64), kMaxWidth, &out->altup.laurel_rank));
  RETURN_IF_ERROR(read_sparsity(c, out));
  RETURN_IF_ERROR(
      check_size("hidden_size_per_layer_input", input.value_or(256), kMaxWidth, &out->layer_input));
  RETURN_IF_ERROR(set_layer_input(out->layer_input, input_vocab.value_or(262144), out));
  return set_shared_layers(shared.value_or(15), out);
}

// A GGUF file has the deviations themselves, -infinity where all of a gate is kept.
Status read_deviations(const GgufFile& file, const std::string& key, ModelConfig* out) {
  ASSIGN_OR_RETURN(const auto stored, file.get_floats(key));
  if (!stored) return corrupt(key + " is missing");
  if (stored->size() != out->windows.size())
    return corrupt(fmt::format("{} has {} numbers for {} layers", key, stored->size(), out->windows.size()));
  for (const float z : *stored) {
    const bool sparse = z != -std::numeric_limits<float>::infinity();
    if (sparse && !(std::fabs(z) <= kMaxDeviations)) return corrupt(fmt::format("{} has {}", key, z));
    out->altup.gate_deviations.push_back(sparse ? std::optional(z) : std::nullopt);
  }
  return {};
}

// The rows of a tensor that every file has.
Result<int64_t> rows_of(const ModelSource& source, const char* name) {
  const SourceTensor* tensor = source.find(name);
  if (tensor == nullptr || tensor->shape.size() != 2)
    return corrupt(fmt::format("tensor {} is missing or no matrix", name));
  return tensor->shape[0];
}

Status read_gguf(const ModelSource& source, ModelConfig* out) {
  const GgufFile& file = *source.gguf();
  const std::string prefix = source.architecture() + ".";
  const auto needed = [&](const char* key) -> Result<int64_t> {
    ASSIGN_OR_RETURN(const auto value, file.get_int(prefix + key));
    if (!value) return corrupt(prefix + key + " is missing");
    return *value;
  };
  ASSIGN_OR_RETURN(const int64_t streams, needed("altup.num_inputs"));
  ASSIGN_OR_RETURN(const int64_t active, needed("altup.active_idx"));
  ASSIGN_OR_RETURN(const int64_t shared, needed("attention.shared_kv_layers"));
  ASSIGN_OR_RETURN(const int64_t input, needed("embedding_length_per_layer_input"));
  ASSIGN_OR_RETURN(const int64_t rank, rows_of(source, "model.layers.0.laurel.linear_left.weight"));
  ASSIGN_OR_RETURN(const int64_t input_vocab, rows_of(source, "model.embed_tokens_per_layer.weight"));
  RETURN_IF_ERROR(set_streams("altup.num_inputs", streams, "altup.active_idx", active, out));
  out->altup.stacked = true;
  out->altup.scales_correction = source.find("model.layers.0.altup.correct_output_scale") != nullptr;
  RETURN_IF_ERROR(check_size("the number of rows of laurel_l", rank, kMaxWidth, &out->altup.laurel_rank));
  RETURN_IF_ERROR(read_deviations(file, prefix + "activation_sparsity_scale", out));
  // Written by newer converters only; the models that there are have this one.
  if (file.find(prefix + "final_logit_softcapping") == nullptr) out->logits_softcap = 30;
  RETURN_IF_ERROR(set_layer_input(input, input_vocab, out));
  return set_shared_layers(shared, out);
}

}  // namespace

Result<ModelConfig> parse_gemma3n(const ModelSource& source) {
  ASSIGN_OR_RETURN(ModelConfig c, parse_dense(source, {.rope_theta = 1e6,
                                                       .tied_head = true,
                                                       .head_dim = 256,
                                                       .activation = "gelu_pytorch_tanh",
                                                       .softcaps = true,
                                                       .window_theta = 10000}));
  set_gemma(source, &c);
  c.norms_less_one = false;
  c.attention_scale = 1;
  c.rope_recipe.reset();  // two bases that belong together: none to replace alone
  RETURN_IF_ERROR(parse_windows(source, WindowRule::kPattern, &c, {.interval = 5, .size = 512}));
  const Status read =
      source.kind() == SourceKind::kGguf ? read_gguf(source, &c) : read_hf(*source.config(), &c);
  if (!read.ok()) return read.with_context(source.path());
  return c;
}

}  // namespace invar
