#pragma once
// How a model says its tokens are to be chosen, where a request leaves it open: generation_config.json of a
// Hugging Face folder, general.sampling.* of a GGUF file. A value that is out of range or of a wrong type is
// ignored with a warning that names it: a wrong hint is no reason not to run the model.

#include <string>
#include <vector>

#include "format/model_source.h"
#include "sampling/params.h"

namespace invar {

struct SamplingDefaults {
  SamplingParams params;
  std::string taken;  // "temperature 0.6, top_k 20"; "" = the model says nothing
  std::vector<std::string> warnings;
};

// base: what holds where the model says nothing.
SamplingDefaults sampling_defaults(const ModelSource& source, const SamplingParams& base = {});

}  // namespace invar
