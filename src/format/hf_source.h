#pragma once
// The ModelSource of a Hugging Face folder: config.json, model.safetensors and side files. Made by
// ModelSource::open().

#include <memory>
#include <string>

#include "format/model_source.h"

namespace invar {

// weights: the name of the .safetensors file inside the folder.
Result<std::unique_ptr<ModelSource>> open_hf_source(const std::string& folder, const std::string& weights);

}  // namespace invar
