#pragma once
// The ModelSource of a GGUF file. Made by ModelSource::open().

#include <memory>
#include <string>

#include "format/model_source.h"

namespace invar {

Result<std::unique_ptr<ModelSource>> open_gguf_source(const std::string& path);

}  // namespace invar
