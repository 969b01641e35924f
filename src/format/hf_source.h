#pragma once
// The ModelSource of a Hugging Face folder: config.json, side files, and model.safetensors or the files that
// model.safetensors.index.json names. Made by ModelSource::open().

#include <memory>
#include <string>

#include "format/model_source.h"

namespace invar {

// What is read of a folder besides its weights.
inline constexpr const char* kSideFiles[] = {
    "config.json",   "generation_config.json", "tokenizer.json",     "tekken.json",
    "qwen.tiktoken", "tokenizer_config.json",  "chat_template.jinja"};

// weights: the name of the .safetensors file inside the folder; any part stands for all of a divided model.
Result<std::unique_ptr<ModelSource>> open_hf_source(const std::string& folder, const std::string& weights);

}  // namespace invar
