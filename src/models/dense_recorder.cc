#include "models/dense_recorder.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"

namespace invar {

DenseRecorder::DenseRecorder(const ModelConfig& config) : config_(config), shape_(config.shape(0)) {}

ValueId DenseRecorder::embed() {
  table_ = builder_.matrix("model.embed_tokens.weight", config_.vocab, config_.hidden);
  return scale("embed_scale", builder_.embed("embed", table_), config_.embedding_multiplier);
}

void DenseRecorder::begin_layer(int32_t layer) {
  site_ = fmt::format("layers.{}.", layer);
  weight_ = fmt::format("model.layers.{}.", layer);
  const int32_t window = config_.windows[static_cast<size_t>(layer)];
  shape_ = config_.shape(layer);
  const std::tuple key(window, shape_.kv_heads, shape_.head_dim);
  if (!groups_.contains(key))
    groups_[key] = builder_.kv_group(
        {.layers = 0, .kv_heads = shape_.kv_heads, .head_dim = shape_.head_dim, .window = window});
  group_ = groups_[key];
  windowed_ = window > 0;
  layer_ = static_cast<size_t>(layer);
}

void DenseRecorder::end_layers() {
  site_.clear();
  weight_.clear();
}

ValueId DenseRecorder::normalize(const std::string& site, ValueId x, const std::string& weight, int64_t width,
                                 int head_dim) {
  const WeightId w = builder_.vector(weight + ".weight", width, 0, config_.norms_less_one);
  if (config_.layer_norm)
    return builder_.layer_norm(site, x, w, builder_.vector(weight + ".bias", width), config_.norm_eps);
  return builder_.rms_norm(site, x, w, config_.norm_eps, head_dim);
}

ValueId DenseRecorder::norm(const std::string& site, ValueId x, const std::string& weight) {
  return normalize(site_ + site, x, weight_ + weight, config_.hidden, 0);
}

ValueId DenseRecorder::wide_norm(const std::string& site, ValueId x, const std::string& weight,
                                 int64_t width) {
  return normalize(site_ + site, x, weight_ + weight, width, 0);
}

ValueId DenseRecorder::head_norm(const std::string& site, ValueId x, const std::string& weight) {
  return normalize(site_ + site, x, weight_ + weight, shape_.head_dim, shape_.head_dim);
}

ValueId DenseRecorder::bare_head_norm(const std::string& site, ValueId x) {
  return builder_.rms_norm(site_ + site, x, kNone, config_.norm_eps, shape_.head_dim);
}

ValueId DenseRecorder::bare_norm(const std::string& site, ValueId x) {
  return builder_.rms_norm(site_ + site, x, kNone, config_.norm_eps);
}

ValueId DenseRecorder::part_norm(const std::string& site, ValueId x, const std::string& weight,
                                 int32_t size) {
  return normalize(site_ + site, x, weight_ + weight, size, size);
}

ValueId DenseRecorder::look_up(const std::string& site, const std::string& weight, int64_t rows,
                               int64_t cols) {
  return builder_.embed(site_ + site, builder_.matrix(weight_ + weight + ".weight", rows, cols));
}

ValueId DenseRecorder::linear(const std::string& site, ValueId x, const std::string& weight, int64_t rows,
                              int64_t cols, bool bias, int rotary_heads) {
  const WeightId w = builder_.matrix(weight_ + weight + ".weight", rows, cols, rotary_heads);
  const WeightId b = bias ? builder_.vector(weight_ + weight + ".bias", rows, rotary_heads) : kNone;
  return builder_.linear(site_ + site, x, w, b);
}

ValueId DenseRecorder::linear_part(const std::string& site, ValueId x, const std::string& fused,
                                   int64_t first_row, int64_t rows, int64_t fused_rows) {
  const std::string tensor = weight_ + fused + ".weight";
  const WeightId w = builder_.matrix(fmt::format("{}[{}:{}]", tensor, first_row, first_row + rows), rows,
                                     config_.hidden, 0, {tensor, first_row, fused_rows});
  return builder_.linear(site_ + site, x, w);
}

ValueId DenseRecorder::linear_of_stack(const std::string& site, ValueId x, const std::string& stack,
                                       int64_t rows, int64_t cols, int32_t count, int32_t index) {
  const std::string tensor = weight_ + stack + ".weight";
  const WeightId w = builder_.matrix(fmt::format("{}[{}]", tensor, index), rows, cols, 0,
                                     {.tensor = tensor, .rows = rows, .experts = count, .expert = index});
  return builder_.linear(site_ + site, x, w);
}

int DenseRecorder::rope_of_layer() {
  const bool other = windowed_ && config_.window_rope;
  int& rope = other ? window_rope_ : rope_;
  if (rope == kNone) rope = builder_.rope(other ? *config_.window_rope : config_.rope);
  return rope;
}

ValueId DenseRecorder::rotate(const std::string& site, ValueId x, int32_t heads) {
  return builder_.rotate(site_ + site, x, rope_of_layer(), heads, shape_.head_dim);
}

ValueId DenseRecorder::attend(const std::string& site, ValueId q, ValueId k, ValueId v, const char* sinks) {
  return donors_[group_] =
             builder_.attend(site_ + site, q, k, v,
                             {.group = group_,
                              .heads = config_.heads,
                              .kv_heads = shape_.kv_heads,
                              .head_dim = shape_.head_dim,
                              .scale = config_.attention_scale,
                              .softcap = config_.attention_softcap},
                             sinks == nullptr ? kNone : builder_.vector(weight_ + sinks, config_.heads));
}

ValueId DenseRecorder::borrow(const std::string& site, ValueId q) {
  CHECK(donors_.contains(group_));
  return builder_.borrow(site_ + site, q, donors_[group_]);
}

ValueId DenseRecorder::add(const std::string& site, ValueId x, ValueId y) {
  return builder_.add(site_ + site, x, y);
}

ValueId DenseRecorder::gated_silu(const std::string& site, ValueId gate, ValueId up) {
  return builder_.gated_silu(site_ + site, gate, up);
}

ValueId DenseRecorder::gated_gelu(const std::string& site, ValueId gate, ValueId up) {
  return builder_.gated_gelu(site_ + site, gate, up);
}

ValueId DenseRecorder::gelu(const std::string& site, ValueId x) {
  return builder_.gelu(site_ + site, x);
}

ValueId DenseRecorder::scale(const std::string& site, ValueId x, float factor) {
  return factor == 1 ? x : builder_.scale(site_ + site, x, factor);
}

ValueId DenseRecorder::multiply(const std::string& site, ValueId x, const std::string& weight, int64_t size) {
  return builder_.multiply(site_ + site, x, builder_.vector(weight_ + weight, size));
}

ValueId DenseRecorder::add_scaled(const std::string& site, ValueId x, ValueId y, ValueId factors,
                                  int32_t column) {
  return builder_.add_scaled(site_ + site, x, y, factors, column);
}

ValueId DenseRecorder::match_rms(const std::string& site, ValueId x, ValueId like, float least_mean_square) {
  return builder_.match_rms(site_ + site, x, like, least_mean_square);
}

ValueId DenseRecorder::sparsify(const std::string& site, ValueId x, float deviations) {
  return builder_.sparsify(site_ + site, x, deviations);
}

ValueId DenseRecorder::tanh(const std::string& site, ValueId x) {
  return builder_.tanh(site_ + site, x);
}

ValueId DenseRecorder::columns(const std::string& site, ValueId x, int32_t first, int32_t count) {
  return builder_.columns(site_ + site, x, first, count);
}

Result<Graph> DenseRecorder::finish(ValueId x) && {
  x = builder_.select_logit_rows("logit_rows", x);
  x = normalize("final_norm", x, "model.norm", config_.hidden, 0);
  const WeightId head =
      config_.tied_head ? table_ : builder_.matrix("lm_head.weight", config_.vocab, config_.hidden);
  site_.clear();
  ValueId logits = scale("logits_scale", builder_.linear("head", x, head), config_.logits_multiplier);
  if (config_.logits_softcap > 0) logits = builder_.softcap("logits_softcap", logits, config_.logits_softcap);
  return std::move(builder_).finish(logits, config_.vocab);
}

}  // namespace invar
