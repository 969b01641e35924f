#include "models/experts_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "format/gguf.h"
#include "format/hf_config.h"
#include "models/dense_keys.h"

namespace invar {
namespace {

Status refuse(const std::string& what) {
  return unsupported(what + " is not supported by this version; use another model");
}

std::string layer_tensor(size_t layer, const std::string& name) {
  return fmt::format("model.layers.{}.{}", layer, name);
}

// The tensors of the first layer with experts say it; the audit finds what does not fit.
ExpertStorage find_storage(const ModelSource& source, const ExpertNames& names, size_t layer) {
  const std::string experts = names.experts;
  if (source.find(layer_tensor(layer, fmt::format("{}.{}.weight", experts, names.gate))) != nullptr)
    return ExpertStorage::kStacked;
  const SourceTensor* fused = source.find(layer_tensor(layer, experts + ".gate_up_proj"));
  if (fused == nullptr) return ExpertStorage::kSeparate;
  return fused->type->form != nullptr && is_float(*fused->type->form) ? ExpertStorage::kTransposed
                                                                      : ExpertStorage::kInterleaved;
}

class HfReader {
 public:
  HfReader(const HfConfig& config, const ExpertsRules& rules) : c_(config), rules_(rules) {}

  Status read(const ModelConfig& config, ExpertsConfig* out) const {
    RETURN_IF_ERROR(size(rules_.count_key, kMaxExperts, &out->count));
    RETURN_IF_ERROR(size(rules_.ffn_key, kMaxWidth, &out->ffn));
    RETURN_IF_ERROR(size(rules_.chosen_key, out->count, &out->attr.chosen));
    if (rules_.norm_key != nullptr) {
      ASSIGN_OR_RETURN(const auto norm, c_.get_bool(rules_.norm_key));
      out->attr.renormalize = norm.value_or(rules_.renormalize);
    }
    if (rules_.scale_key != nullptr) {
      ASSIGN_OR_RETURN(const auto scale, c_.get_double(rules_.scale_key));
      RETURN_IF_ERROR(check_factor(rules_.scale_key, scale.value_or(1), &out->attr.scale));
    }
    for (const char* key : {"n_group", "topk_group"}) {
      ASSIGN_OR_RETURN(const auto groups, c_.get_int(key));
      if (groups.value_or(1) > 1) return refuse(fmt::format("a choice by groups ({} = {})", key, *groups));
    }
    RETURN_IF_ERROR(read_shared(out));
    return read_layers(config, out);
  }

 private:
  Result<int64_t> needed(const char* key) const {
    ASSIGN_OR_RETURN(const auto value, c_.get_int(key));
    if (!value) return corrupt(fmt::format("{} is missing", key));
    return *value;
  }
  Status size(const char* key, int64_t most, int32_t* out) const {
    ASSIGN_OR_RETURN(const int64_t value, needed(key));
    return check_size(key, value, most, out);
  }

  Status read_shared(ExpertsConfig* out) const {
    if (rules_.shared_ffn_key != nullptr) return size(rules_.shared_ffn_key, kMaxWidth, &out->shared_ffn);
    if (rules_.shared_count_key == nullptr) return {};
    ASSIGN_OR_RETURN(const int64_t count, needed(rules_.shared_count_key));
    if (count == 0) return {};
    if (count < 0 || count > kMaxWidth)
      return corrupt(fmt::format("{} is {}", rules_.shared_count_key, count));
    return check_size(rules_.shared_count_key, count * out->ffn, kMaxWidth, &out->shared_ffn);
  }

  Status read_layers(const ModelConfig& config, ExpertsConfig* out) const {
    const int64_t layers = config.layers;
    if (rules_.dense_key != nullptr) {
      ASSIGN_OR_RETURN(const auto dense, c_.get_int(rules_.dense_key));
      for (int64_t l = 0; l < std::min(dense.value_or(0), layers); ++l)
        out->layers[static_cast<size_t>(l)] = false;
    }
    if (!rules_.sparse_step) return {};
    ASSIGN_OR_RETURN(const auto step, c_.get_int("decoder_sparse_step"));
    ASSIGN_OR_RETURN(const auto dense, c_.get_ints("mlp_only_layers"));
    int32_t every = 1;
    RETURN_IF_ERROR(check_size("decoder_sparse_step", step.value_or(1), kMaxLayers, &every));
    for (int64_t l = 0; l < layers; ++l)
      if ((l + 1) % every != 0) out->layers[static_cast<size_t>(l)] = false;
    for (const int64_t l : dense.value_or(std::vector<int64_t>()))
      if (l >= 0 && l < layers) out->layers[static_cast<size_t>(l)] = false;
    return {};
  }

  const HfConfig& c_;
  const ExpertsRules& rules_;
};

class GgufReader {
 public:
  GgufReader(const GgufFile& file, std::string prefix, const ExpertsRules& rules)
      : file_(file), prefix_(std::move(prefix)), rules_(rules) {}

  Status read(const ModelSource& source, const ModelConfig& config, ExpertsConfig* out) const {
    RETURN_IF_ERROR(size("expert_count", kMaxExperts, &out->count));
    const bool own_ffn = file_.find(key("expert_feed_forward_length")) != nullptr;
    out->ffn = config.ffn;
    if (own_ffn) RETURN_IF_ERROR(size("expert_feed_forward_length", kMaxWidth, &out->ffn));
    RETURN_IF_ERROR(size("expert_used_count", out->count, &out->attr.chosen));
    ASSIGN_OR_RETURN(const auto norm, file_.get_bool(key("expert_weights_norm")));
    out->attr.renormalize =
        norm.value_or(rules_.gguf_renormalize) && rules_.routing != Routing::kSoftmaxOfChosen;
    ASSIGN_OR_RETURN(const auto scale, file_.get_f32(key("expert_weights_scale")));
    if (scale.value_or(0) != 0)
      RETURN_IF_ERROR(check_factor(key("expert_weights_scale").c_str(), double(*scale), &out->attr.scale));
    RETURN_IF_ERROR(check_routing());
    ASSIGN_OR_RETURN(const auto groups, file_.get_int(key("expert_group_count")));
    if (groups.value_or(1) > 1) return refuse(fmt::format("{} = {}", key("expert_group_count"), *groups));
    RETURN_IF_ERROR(read_shared(out));
    const std::string router = std::string(rules_.names.router) + ".weight";
    for (size_t l = 0; l < out->layers.size(); ++l)
      out->layers[l] = source.find(layer_tensor(l, router)) != nullptr;
    return {};
  }

 private:
  std::string key(const char* suffix) const { return prefix_ + "." + suffix; }
  Status size(const char* suffix, int64_t most, int32_t* out) const {
    ASSIGN_OR_RETURN(const auto value, file_.get_int(key(suffix)));
    if (!value) return corrupt(key(suffix) + " is missing");
    return check_size(key(suffix).c_str(), *value, most, out);
  }

  Status check_routing() const {
    constexpr int64_t kSoftmax = 1, kSigmoid = 2, kSoftmaxOfChosen = 3;
    const int64_t expected = rules_.routing == Routing::kSigmoid           ? kSigmoid
                             : rules_.routing == Routing::kSoftmaxOfChosen ? kSoftmaxOfChosen
                                                                           : kSoftmax;
    ASSIGN_OR_RETURN(const auto stored, file_.get_int(key("expert_gating_func")));
    if (stored.value_or(0) == 0 || *stored == expected) return {};
    return refuse(fmt::format("{} = {}", key("expert_gating_func"), *stored));
  }

  Status read_shared(ExpertsConfig* out) const {
    if (rules_.shared_ffn_key != nullptr)
      return size("expert_shared_feed_forward_length", kMaxWidth, &out->shared_ffn);
    if (rules_.shared_count_key == nullptr) return {};
    ASSIGN_OR_RETURN(const auto count, file_.get_int(key("expert_shared_count")));
    const int64_t n = count.value_or(0);
    if (n == 0) return {};
    if (n < 0 || n > kMaxWidth) return corrupt(fmt::format("{} is {}", key("expert_shared_count"), n));
    return check_size(key("expert_shared_count").c_str(), n * out->ffn, kMaxWidth, &out->shared_ffn);
  }

  const GgufFile& file_;
  std::string prefix_;
  const ExpertsRules& rules_;
};

}  // namespace

Status parse_experts(const ModelSource& source, const ExpertsRules& rules, ModelConfig* config) {
  ExpertsConfig& out = config->experts;
  out.attr.routing = rules.routing;
  out.attr.renormalize = rules.renormalize && rules.routing != Routing::kSoftmaxOfChosen;
  out.attr.sum_floor = rules.sum_floor;
  out.shared_gate = rules.shared_gate;
  out.correction = rules.correction;
  out.biases = rules.biases;
  out.names = rules.names;
  out.layers.assign(static_cast<size_t>(config->layers), true);
  const Status read =
      source.kind() == SourceKind::kGguf
          ? GgufReader(*source.gguf(), source.architecture(), rules).read(source, *config, &out)
          : HfReader(*source.config(), rules).read(*config, &out);
  if (!read.ok()) return read.with_context(source.path());
  const auto first = std::find(out.layers.begin(), out.layers.end(), true);
  if (first == out.layers.end()) return {};
  out.storage = find_storage(source, rules.names, static_cast<size_t>(first - out.layers.begin()));
  // Before anything is built by the number of experts.
  const auto sparse = static_cast<size_t>(std::count(out.layers.begin(), out.layers.end(), true));
  const size_t tensors =
      out.storage == ExpertStorage::kSeparate ? sparse * static_cast<size_t>(out.count) : sparse;
  if (tensors > source.tensors().size())
    return corrupt(fmt::format("{}: {} layers of {} experts, but only {} tensors", source.path(), sparse,
                               out.count, source.tensors().size()));
  return {};
}

}  // namespace invar
