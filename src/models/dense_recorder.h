#pragma once
// DenseRecorder: the lines that every dense decoder family records alike: weights by their canonical names,
// rope, a KV group per window size, the embedding and the head. A family calls it line by line; what is
// peculiar to a family stays in its file. Lives while one graph is recorded.

#include <cstdint>
#include <map>
#include <string>

#include "graph/builder.h"
#include "models/config.h"

namespace invar {

class DenseRecorder {
 public:
  explicit DenseRecorder(const ModelConfig& config);

  int64_t q_width() const { return int64_t{config_.heads} * config_.head_dim; }
  int64_t kv_width() const { return int64_t{config_.kv_heads} * config_.head_dim; }

  ValueId embed();
  // From here on sites start with "layers.N." and weights with "model.layers.N.".
  void begin_layer(int32_t layer);

  // weight: without ".weight" or ".bias".
  ValueId norm(const std::string& site, ValueId x, const std::string& weight);
  // Over the whole projection.
  ValueId wide_norm(const std::string& site, ValueId x, const std::string& weight, int64_t width);
  ValueId head_norm(const std::string& site, ValueId x, const std::string& weight);  // each head by itself
  ValueId linear(const std::string& site, ValueId x, const std::string& weight, int64_t rows, int64_t cols,
                 bool bias = false, int rotary_heads = 0);
  // The rows from first_row on of a matrix that the file keeps as one of fused_rows.
  ValueId linear_part(const std::string& site, ValueId x, const std::string& fused, int64_t first_row,
                      int64_t rows, int64_t fused_rows);
  ValueId rotate(const std::string& site, ValueId x, int32_t heads);
  ValueId attend(const std::string& site, ValueId q, ValueId k, ValueId v);
  ValueId add(const std::string& site, ValueId x, ValueId y);
  ValueId scale(const std::string& site, ValueId x, float factor);  // x itself if the factor is 1
  ValueId gated_silu(const std::string& site, ValueId gate, ValueId up);

  ValueId gated_gelu(const std::string& site, ValueId gate, ValueId up);
  ValueId gelu(const std::string& site, ValueId x);

  // The rows that want logits, the last norm and the head, tied to the embedding or not; the logits'
  // multiplier and softcap.
  Result<Graph> finish(ValueId x) &&;

 private:
  ValueId normalize(const std::string& site, ValueId x, const std::string& weight, int64_t width,
                    int head_dim);
  int rope_of_layer();

  const ModelConfig& config_;
  GraphBuilder builder_;
  int rope_ = kNone, window_rope_ = kNone;
  std::map<int32_t, int> groups_;  // by window
  int group_ = 0;                  // of the current layer
  bool windowed_ = false;          // the current layer
  WeightId table_ = kNone;
  std::string site_, weight_;  // prefixes of the current layer
};

}  // namespace invar
