#pragma once
// What all Gemma families share.

#include <cmath>

#include "format/model_source.h"
#include "models/config.h"

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

}  // namespace invar
