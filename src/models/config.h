#pragma once
// ModelConfig: what a family needs to record its graph, whatever file it came from. Plain values, checked by
// the parser: positive, bounded, divisible where a formula divides.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "models/rope_scaling.h"

namespace invar {

struct LayerShape {
  int32_t kv_heads, head_dim, ffn;
};

// How a file keeps the matrices of the experts of a layer.
enum class ExpertStorage : uint8_t {
  kSeparate,     // each by itself
  kStacked,      // all gates one tensor [experts, ffn, hidden]; up and down alike
  kFused,        // gates and ups one tensor [experts, 2 * ffn, hidden], gates first
  kInterleaved,  // the same, gate and up row by row in turn
  kTransposed,   // [experts, hidden, 2 * ffn], gate and up column by column in turn
};

// Of a layer's tensors, without ".weight" and ".bias".
struct ExpertNames {
  const char* router = "mlp.gate";
  const char* experts = "mlp.experts";
  const char *gate = "gate_proj", *up = "up_proj", *down = "down_proj";
  const char* shared = "mlp.shared_expert";
  const char* shared_gate = "mlp.shared_expert_gate";
};

// Mixture of experts, in some or all layers.
struct ExpertsConfig {
  int32_t count = 0;  // 0: no layer has experts
  int32_t ffn = 0;
  int32_t shared_ffn = 0;    // 0: no shared expert
  bool shared_gate = false;  // its result has a gate
  bool correction = false;   // the choice goes by corrected scores
  bool biases = false;       // of the router and of every matrix
  ExpertsAttr attr{};        // as the file has it
  ExpertStorage storage = ExpertStorage::kSeparate;
  ExpertNames names;
  std::vector<bool> layers;  // [layers]: those with experts; the others are dense
};

// Gemma 3n: several streams of values between layers, of which one at a time is active.
struct AltUpConfig {
  int32_t streams = 1, active = 0, laurel_rank = 0;
  bool scales_correction = false;                     // of the active stream
  bool stacked = false;                               // the matrices between streams are one tensor
  std::vector<std::optional<float>> gate_deviations;  // [layers]: what a gate keeps lies above
};

struct ModelConfig {
  int32_t vocab = 0;
  int32_t hidden = 0;
  int32_t layers = 0;
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t ffn = 0;
  int32_t context_length = 0;
  float norm_eps = 0;
  Rope rope;
  std::optional<RopeRecipe> rope_recipe;  // of `rope`, where it is the only one that scales
  std::optional<Rope> window_rope;        // of the layers with a window, where they rotate by another one
  float attention_scale = 0;    // scores are q.k times this, 1 / sqrt(head_dim) unless a file says more
  float attention_softcap = 0;  // 0: none
  float logits_softcap = 0;
  float embedding_multiplier = 1, residual_multiplier = 1, logits_multiplier = 1;
  bool norms_less_one = false;  // weights of norms are stored less one
  bool layer_norm = false;      // norms have a mean and a bias
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's output projection
  bool mlp_bias = false;
  bool tied_head = false;
  bool head_norms = false;    // q and k are normalized per head, where a family may do either
  int32_t unused_layers = 0;  // of the file, behind the last: for drafts, not read
  ExpertsConfig experts;
  std::vector<bool> rotates;       // [layers]: false where a layer has no rotary positions
  std::vector<int32_t> windows;    // [layers]: a query at p sees positions > p - window; 0 = all
  std::vector<LayerShape> shapes;  // [layers] where they differ from kv_heads, head_dim and ffn; else empty
  int32_t shared_kv_layers = 0;    // the last ones, which read keys and values of layers before them
  std::vector<bool> keys_are_values;  // [layers]: no projection for values; empty: none
  int32_t layer_input = 0;            // width of the input that every layer has of its own; 0: none
  int32_t layer_input_vocab = 0;      // rows of its table
  AltUpConfig altup;
  std::vector<std::string> idle_tensors;    // that a file may hold and nothing needs
  std::vector<std::string> folded_tensors;  // that were read into this configuration
  double theta = 0, window_theta = 0;       // the bases of rope and window_rope, for those who write a file

  LayerShape shape(int32_t layer) const {
    return shapes.empty() ? LayerShape{kv_heads, head_dim, ffn} : shapes[static_cast<size_t>(layer)];
  }
};

}  // namespace invar
