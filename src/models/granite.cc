// Granite: the layers of Llama; embeddings, residuals, scores and logits have multipliers.

#include "models/dense_config.h"
#include "models/family.h"
#include "models/layer_windows.h"

namespace invar {

Result<ModelConfig> parse_granite(const ModelSource& source) {
  ASSIGN_OR_RETURN(ModelConfig c, parse_dense(source, {.multipliers = true}));
  RETURN_IF_ERROR(parse_windows(source, WindowRule::kNone, &c));
  return c;
}

}  // namespace invar
