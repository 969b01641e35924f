#pragma once
// The metadata of a GGUF file that says what a configuration says: the way back of models/gguf_dense.cc and
// its neighbours, whose reading of it decides whether it was said.

#include "cli/convert/gguf_writer.h"
#include "models/config.h"

namespace invar {

// What readers of some architectures take for granted and must not find, and others have to be told.
struct ToldKeys {
  bool window_layers = false;  // which layers have a window
  bool factors = false;        // of embeddings, residuals, scores and logits
};

void add_metadata(const ModelConfig& config, const char* architecture, ToldKeys told, GgufFileWriter& writer);

}  // namespace invar
