#pragma once
// Family: one row of the table in families.cc. A family reads its configuration and records its mathematics;
// it names no cache, batch, device or thread. Adding one: src/models/x.cc and a line in families.cc.

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "format/model_source.h"
#include "models/config.h"

namespace invar {

struct Family {
  const char* name;       // general.architecture of GGUF files and model_type of config.json
  const char* gguf;       // what the GGUF files that convert writes call it; nullptr: it writes none
  bool gguf_interleaves;  // its GGUF converter interleaves the halves of rotary rows (undone when packed)
  Result<ModelConfig> (*parse)(const ModelSource& source);
  Result<Graph> (*build)(const ModelConfig& config);
};

std::span<const Family> families();

// The family of a model; an unknown architecture is an error that lists the known ones.
Result<const Family*> find_family(const ModelSource& source);

}  // namespace invar
