// Gemma 3n (text): the stream is several (AltUp): a layer predicts all of them from all, works on one, and
// corrects all by what came out. Beside attention runs a product of two thin matrices (Laurel). Gates of the
// first layers keep only what stands out. Layer inputs and shared keys are those of Gemma 4.

#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "models/dense_recorder.h"
#include "models/family.h"
#include "models/gemma.h"

namespace invar {
namespace {

constexpr float kLeastMeanSquare = 1e-5f;

using Streams = std::vector<ValueId>;

// Stream i >= 1 from or to the embedding; files keep these matrices one by one or as one stack.
ValueId project_stream(DenseRecorder& r, const ModelConfig& c, const std::string& site, const char* stack,
                       int32_t i, ValueId x) {
  if (c.altup.stacked)
    return r.linear_of_stack(site, x, stack, c.hidden, c.hidden, c.altup.streams - 1, i - 1);
  return r.linear(site, x, fmt::format("{}.{}", stack, i - 1), c.hidden, c.hidden);
}

// What a stream says about how to mix: one number per stream between -1 and 1.
ValueId record_modalities(DenseRecorder& r, const ModelConfig& c, const std::string& site, ValueId x) {
  ValueId m = r.norm(site + "_norm", x, "altup.router_norm");
  m = r.scale(site + "_scale", m, static_cast<float>(1.0 / c.hidden));
  return r.tanh(site, r.linear(site + "_router", m, "altup.modality_router", c.altup.streams, c.hidden));
}

// stream i + the sum over j of factor (i, j) times stream j.
Streams record_prediction(DenseRecorder& r, const ModelConfig& c, const Streams& x) {
  const int32_t n = c.altup.streams;
  const ValueId m = record_modalities(r, c, "altup.before", x[static_cast<size_t>(c.altup.active)]);
  const ValueId factors = r.linear("altup.predict", m, "altup.prediction_coefs", int64_t{n} * n, n);
  Streams out = x;
  for (int32_t i = 0; i < n; ++i)
    for (int32_t j = 0; j < n; ++j) {
      ValueId& y = out[static_cast<size_t>(i)];
      y = r.add_scaled(fmt::format("altup.predict.{}.{}", i, j), y, x[static_cast<size_t>(j)], factors,
                       i * n + j);
    }
  return out;
}

// prediction i + (1 + factor i) times the distance of the active one from what came out.
Streams record_correction(DenseRecorder& r, const ModelConfig& c, const Streams& predicted, ValueId y) {
  const ValueId m = record_modalities(r, c, "altup.after", y);
  const ValueId factors =
      r.linear("altup.correct", m, "altup.correction_coefs", c.altup.streams, c.altup.streams);
  const ValueId active = predicted[static_cast<size_t>(c.altup.active)];
  const ValueId distance = r.add("altup.distance", y, r.scale("altup.minus", active, -1));
  Streams out;
  for (int32_t i = 0; i < c.altup.streams; ++i) {
    const std::string site = fmt::format("altup.correct.{}", i);
    const ValueId moved = r.add(site + ".whole", predicted[static_cast<size_t>(i)], distance);
    out.push_back(r.add_scaled(site, moved, distance, factors, i));
  }
  return out;
}

ValueId record_layer(DenseRecorder& r, const ModelConfig& c, ValueId x, int32_t l) {
  const float root_of_half = static_cast<float>(1.0 / std::sqrt(2.0));
  const ValueId h = r.norm("attn_norm", x, "input_layernorm");
  const ValueId thin = r.linear("laurel.left", h, "laurel.linear_left", c.altup.laurel_rank, c.hidden);
  ValueId laurel = r.linear("laurel.right", thin, "laurel.linear_right", c.hidden, c.altup.laurel_rank);
  laurel = r.add("laurel", h, r.norm("laurel.norm", laurel, "laurel.post_laurel_norm"));

  ValueId q = r.linear("attn.q", h, "self_attn.q_proj", r.q_width(), c.hidden, c.qkv_bias);
  q = r.head_norm("attn.q_norm", q, "self_attn.q_norm");
  q = r.rotate("attn.q_rope", q, c.heads);
  ValueId a = kNone;
  if (l >= c.layers - c.shared_kv_layers) {
    a = r.borrow("attn", q);
  } else {
    ValueId k = r.linear("attn.k", h, "self_attn.k_proj", r.kv_width(), c.hidden, c.qkv_bias);
    ValueId v = r.linear("attn.v", h, "self_attn.v_proj", r.kv_width(), c.hidden, c.qkv_bias);
    k = r.head_norm("attn.k_norm", k, "self_attn.k_norm");
    v = r.bare_head_norm("attn.v_norm", v);
    k = r.rotate("attn.k_rope", k, c.kv_heads);
    a = r.attend("attn", q, k, v);
  }
  const ValueId o = r.linear("attn.o", a, "self_attn.o_proj", c.hidden, r.q_width(), c.output_bias);
  ValueId t = r.add("attn_residual", x, r.norm("attn_post_norm", o, "post_attention_layernorm"));
  t = r.scale("attn_scale", r.add("laurel_residual", t, laurel), root_of_half);

  const ValueId m = r.norm("mlp_norm", t, "pre_feedforward_layernorm");
  ValueId gate = r.linear("mlp.gate", m, "mlp.gate_proj", c.ffn, c.hidden);
  if (const auto deviations = c.altup.gate_deviations[static_cast<size_t>(l)]; deviations)
    gate = r.sparsify("mlp.sparse", gate, *deviations);
  const ValueId up = r.linear("mlp.up", m, "mlp.up_proj", c.ffn, c.hidden);
  const ValueId y = r.gated_gelu("mlp.act", gate, up);
  const ValueId down = r.linear("mlp.down", y, "mlp.down_proj", c.hidden, c.ffn);
  return r.add("mlp_residual", t, r.norm("mlp_post_norm", down, "post_feedforward_layernorm"));
}

}  // namespace

Result<Graph> build_gemma3n(const ModelConfig& c) {
  DenseRecorder r(c);
  const ValueId embedded = r.embed();
  const ValueId inputs = record_layer_inputs(r, c, embedded);
  Streams x = {embedded};
  for (int32_t i = 1; i < c.altup.streams; ++i) {
    const std::string site = fmt::format("streams.{}", i);
    const ValueId y = project_stream(r, c, site + ".in", "model.altup_projections", i, embedded);
    x.push_back(r.match_rms(site, y, embedded, kLeastMeanSquare));
  }
  for (int32_t l = 0; l < c.layers; ++l) {
    r.begin_layer(l);
    const Streams predicted = record_prediction(r, c, x);
    const ValueId y = record_layer(r, c, predicted[static_cast<size_t>(c.altup.active)], l);
    x = record_correction(r, c, predicted, y);
    ValueId active = x[static_cast<size_t>(c.altup.active)];
    if (c.altup.scales_correction)
      active = r.multiply("altup.active_scale", active, "altup.correct_output_scale", c.hidden);
    const ValueId own = record_layer_input(r, c, active, inputs, l);
    for (size_t i = 1; i < x.size(); ++i)
      x[i] = r.add(fmt::format("input_residual.{}", i), x[i], own);
  }
  r.end_layers();
  ValueId sum = x[0];
  for (int32_t i = 1; i < c.altup.streams; ++i) {
    const std::string site = fmt::format("streams.{}.out", i);
    const ValueId y =
        project_stream(r, c, site, "model.altup_unembed_projections", i, x[static_cast<size_t>(i)]);
    sum = r.add(site + "_sum", sum, r.match_rms(site + "_rms", y, x[0], kLeastMeanSquare));
  }
  const ValueId mean = r.scale("streams.mean", sum, static_cast<float>(1.0 / c.altup.streams));
  return std::move(r).finish(mean);
}

}  // namespace invar
