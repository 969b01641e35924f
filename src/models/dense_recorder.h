#pragma once
// DenseRecorder: the lines that every dense decoder family records alike: weights by their canonical names,
// rope, a KV group per window size, the embedding and the head. A family calls it line by line; what is
// peculiar to a family stays in its file. Lives while one graph is recorded.

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "graph/builder.h"
#include "models/config.h"

namespace invar {

class DenseRecorder {
 public:
  explicit DenseRecorder(const ModelConfig& config);

  // Of the current layer.
  const LayerShape& shape() const { return shape_; }
  int64_t q_width() const { return int64_t{config_.heads} * shape_.head_dim; }
  int64_t kv_width() const { return int64_t{shape_.kv_heads} * shape_.head_dim; }

  ValueId embed();
  // From here on sites start with "layers.N." and weights with "model.layers.N.".
  void begin_layer(int32_t layer);

  void end_layers();  // what follows belongs to no layer

  // weight: without ".weight" or ".bias".
  ValueId norm(const std::string& site, ValueId x, const std::string& weight);
  // Over the whole projection.
  ValueId wide_norm(const std::string& site, ValueId x, const std::string& weight, int64_t width);
  ValueId head_norm(const std::string& site, ValueId x, const std::string& weight);  // each head by itself
  ValueId bare_head_norm(const std::string& site, ValueId x);                        // without a weight
  ValueId bare_norm(const std::string& site, ValueId x);                             // of the whole row
  // Each `size` elements by themselves.
  ValueId part_norm(const std::string& site, ValueId x, const std::string& weight, int32_t size);
  // Another table by the step's tokens.
  ValueId look_up(const std::string& site, const std::string& weight, int64_t rows, int64_t cols);
  ValueId linear(const std::string& site, ValueId x, const std::string& weight, int64_t rows, int64_t cols,
                 bool bias = false, int rotary_heads = 0);
  // The rows from first_row on of a matrix that the file keeps as one of fused_rows.
  ValueId linear_part(const std::string& site, ValueId x, const std::string& fused, int64_t first_row,
                      int64_t rows, int64_t fused_rows);
  // Matrix number `index` of `count` that the file keeps as one tensor [count, rows, cols].
  ValueId linear_of_stack(const std::string& site, ValueId x, const std::string& stack, int64_t rows,
                          int64_t cols, int32_t count, int32_t index);
  ValueId rotate(const std::string& site, ValueId x, int32_t heads);
  ValueId attend(const std::string& site, ValueId q, ValueId k, ValueId v, const char* sinks = nullptr);
  // With the keys and values of the last layer that wrote some of this layer's window and shape.
  ValueId borrow(const std::string& site, ValueId q);
  ValueId add(const std::string& site, ValueId x, ValueId y);
  ValueId scale(const std::string& site, ValueId x, float factor);  // x itself if the factor is 1
  // weight: its whole name behind the layer's prefix, a vector of `size` elements, 1 or those of x.
  ValueId multiply(const std::string& site, ValueId x, const std::string& weight, int64_t size);
  ValueId add_scaled(const std::string& site, ValueId x, ValueId y, ValueId factors, int32_t column);
  ValueId match_rms(const std::string& site, ValueId x, ValueId like, float least_mean_square);
  ValueId sparsify(const std::string& site, ValueId x, float deviations);
  ValueId tanh(const std::string& site, ValueId x);
  ValueId columns(const std::string& site, ValueId x, int32_t first, int32_t count);
  ValueId gated_silu(const std::string& site, ValueId gate, ValueId up);

  // The network of the layer on the normalized x: experts in a layer that has them, else one with silu in
  // its gate, "mlp.gate_proj" and so on.
  ValueId network(ValueId x);
  // The layer's experts on x alone, by these scores. scale: a vector with a factor of each expert's weight.
  ValueId experts(const std::string& site, ValueId x, ValueId scores, const std::string& scale);

  ValueId gated_gelu(const std::string& site, ValueId gate, ValueId up);
  ValueId gelu(const std::string& site, ValueId x);

  // The rows that want logits, the last norm and the head, tied to the embedding or not; the logits'
  // multiplier and softcap.
  Result<Graph> finish(ValueId x) &&;

 private:
  ValueId normalize(const std::string& site, ValueId x, const std::string& weight, int64_t width,
                    int head_dim);
  int rope_of_layer();
  WeightId expert_matrix(const char* matrix, int32_t expert);
  std::vector<ExpertWeights> expert_set();
  WeightId expert_bias(const char* matrix, int32_t expert);

  const ModelConfig& config_;
  GraphBuilder builder_;
  int rope_ = kNone, window_rope_ = kNone;
  std::map<std::tuple<int32_t, int32_t, int32_t>, int> groups_;  // by window, KV heads, head dimension
  std::map<int, ValueId> donors_;                                // the last attention that wrote to a group
  LayerShape shape_;
  int group_ = 0;          // of the current layer
  bool windowed_ = false;  // the current layer
  size_t layer_ = 0;
  WeightId table_ = kNone;
  std::string site_, weight_;  // prefixes of the current layer
};

}  // namespace invar
