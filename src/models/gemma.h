#pragma once
// What several Gemma families share.

#include <cmath>

#include "format/model_source.h"
#include "models/config.h"
#include "models/dense_recorder.h"

namespace invar {

// Embeddings are multiplied by the root of their width. Hugging Face's files store the weights of norms less
// one, GGUF files as they are. The one size of each generation whose scores do not follow from the head
// dimension is told by its layers, because GGUF files have no key for that.
inline void set_gemma(const ModelSource& source, ModelConfig* c, int32_t odd_layers = 0) {
  c->embedding_multiplier = static_cast<float>(std::sqrt(static_cast<double>(c->hidden)));
  c->norms_less_one = source.kind() == SourceKind::kHuggingFace;
  if (source.kind() == SourceKind::kGguf && c->layers == odd_layers)
    c->attention_scale =
        static_cast<float>(1.0 / std::sqrt(static_cast<double>(c->hidden) / static_cast<double>(c->heads)));
}

// The last `count` layers read keys and values of the last layer before them with their window and shape, and
// need no projections for their own. Windows and shapes must be filled in.
Status set_shared_layers(int64_t count, ModelConfig* config);

// Every layer has an input of its own of this width, by a table with `rows` rows; 0: none.
Status set_layer_input(int64_t width, int64_t rows, ModelConfig* config);

// The inputs of all layers side by side, from the tokens and from x, the scaled embedding. Before any layer.
ValueId record_layer_inputs(DenseRecorder& r, const ModelConfig& config, ValueId x);
// What the layer's input, gated by x, adds to the stream.
ValueId record_layer_input(DenseRecorder& r, const ModelConfig& config, ValueId x, ValueId inputs,
                           int32_t layer);

}  // namespace invar
