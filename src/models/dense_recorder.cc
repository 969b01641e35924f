#include "models/dense_recorder.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace invar {

DenseRecorder::DenseRecorder(const ModelConfig& config)
    : config_(config), rope_(builder_.rope(config.rope)) {}

ValueId DenseRecorder::embed() {
  table_ = builder_.matrix("model.embed_tokens.weight", config_.vocab, config_.hidden);
  return builder_.embed("embed", table_);
}

void DenseRecorder::begin_layer(int32_t layer) {
  site_ = fmt::format("layers.{}.", layer);
  weight_ = fmt::format("model.layers.{}.", layer);
  const int32_t window = config_.windows[static_cast<size_t>(layer)];
  if (!groups_.contains(window))
    groups_[window] = builder_.kv_group(
        {.layers = 0, .kv_heads = config_.kv_heads, .head_dim = config_.head_dim, .window = window});
  group_ = groups_[window];
}

ValueId DenseRecorder::norm(const std::string& site, ValueId x, const std::string& weight) {
  return builder_.rms_norm(site_ + site, x, builder_.vector(weight_ + weight + ".weight", config_.hidden),
                           config_.rms_eps);
}

ValueId DenseRecorder::head_norm(const std::string& site, ValueId x, const std::string& weight) {
  return builder_.rms_norm(site_ + site, x, builder_.vector(weight_ + weight + ".weight", config_.head_dim),
                           config_.rms_eps, config_.head_dim);
}

ValueId DenseRecorder::linear(const std::string& site, ValueId x, const std::string& weight, int64_t rows,
                              int64_t cols, bool bias, int rotary_heads) {
  const WeightId w = builder_.matrix(weight_ + weight + ".weight", rows, cols, rotary_heads);
  const WeightId b = bias ? builder_.vector(weight_ + weight + ".bias", rows, rotary_heads) : kNone;
  return builder_.linear(site_ + site, x, w, b);
}

ValueId DenseRecorder::rotate(const std::string& site, ValueId x, int32_t heads) {
  return builder_.rotate(site_ + site, x, rope_, heads, config_.head_dim);
}

ValueId DenseRecorder::attend(const std::string& site, ValueId q, ValueId k, ValueId v) {
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim)));
  return builder_.attend(site_ + site, q, k, v,
                         {.group = group_,
                          .heads = config_.heads,
                          .kv_heads = config_.kv_heads,
                          .head_dim = config_.head_dim,
                          .scale = scale});
}

ValueId DenseRecorder::add(const std::string& site, ValueId x, ValueId y) {
  return builder_.add(site_ + site, x, y);
}

ValueId DenseRecorder::gated_silu(const std::string& site, ValueId gate, ValueId up) {
  return builder_.gated_silu(site_ + site, gate, up);
}

Result<Graph> DenseRecorder::finish(ValueId x) && {
  x = builder_.select_logit_rows("logit_rows", x);
  x = builder_.rms_norm("final_norm", x, builder_.vector("model.norm.weight", config_.hidden),
                        config_.rms_eps);
  const WeightId head =
      config_.tied_head ? table_ : builder_.matrix("lm_head.weight", config_.vocab, config_.hidden);
  return std::move(builder_).finish(builder_.linear("head", x, head), config_.vocab);
}

}  // namespace invar
