#include "models/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "base/quote.h"

namespace invar {
namespace {

// Tensors that follow from the configuration or that a tied head makes redundant.
bool may_drop(const std::string& name, const ModelConfig& config) {
  if (name.ends_with(".rotary_emb.inv_freq")) return true;
  if (name.ends_with(".rotary_emb.inv_freq.weight")) return true;
  // Parts of a model of several that only its images and sounds go through.
  for (const char* part : {"vision_tower.", "audio_tower.", "embed_vision.", "embed_audio.",
                           "vision_embedder.", "multi_modal_projector."})
    if (name.starts_with(part) || name.starts_with(std::string("model.") + part)) return true;
  if (std::find(config.idle_tensors.begin(), config.idle_tensors.end(), name) != config.idle_tensors.end())
    return true;
  for (int32_t l = config.layers; l < config.layers + config.unused_layers; ++l)
    for (const char* prefix : {"model.layers.", "blk."})
      if (name.starts_with(fmt::format("{}{}.", prefix, l))) return true;
  return name == "lm_head.weight" && config.tied_head;
}

Status check(const Weight& weight, const SourceTensor& tensor) {
  std::vector<int64_t> wanted = {weight.fused.empty() ? weight.rows : weight.fused_rows};
  if (weight.kind == Weight::Kind::kMatrix)
    wanted.insert(weight.transposed ? wanted.begin() : wanted.end(), weight.cols);
  if (weight.experts > 0) wanted.insert(wanted.begin(), weight.experts);
  const std::string name = quote(tensor.stored_name);
  // GGUF writes a matrix of one row as a vector.
  const bool one_row = weight.kind == Weight::Kind::kMatrix && wanted.front() == 1 && wanted.size() == 2 &&
                       tensor.shape == std::vector<int64_t>{weight.cols};
  if (tensor.shape != wanted && !one_row)
    return corrupt(fmt::format("tensor {} is {}, but the configuration wants {}", name,
                               shape_text(tensor.shape), shape_text(wanted)));
  if (tensor.type->form == nullptr)
    return unsupported(
        fmt::format("tensor {} has type {}, which this version does not support; docs/formats.md lists those "
                    "that it does",
                    name, tensor.type->name));
  if (weight.kind == Weight::Kind::kVector && !is_float(*tensor.type->form))
    return unsupported(
        fmt::format("vector {} has type {}; F32, F16 and BF16 are supported", name, tensor.type->name));
  if (weight.transposed && (!is_float(*tensor.type->form) || tensor.planes != nullptr))
    return unsupported(
        fmt::format("tensor {} has type {} and lies transposed; F32, F16 and BF16 are supported", name,
                    tensor.type->name));
  return {};
}

}  // namespace

Result<Audit> audit_tensors(const ModelSource& source, const ModelConfig& config, const Graph& graph) {
  Audit audit;
  std::unordered_set<const SourceTensor*> used;
  for (const Weight& weight : graph.weights) {
    const SourceTensor* tensor = source.find(weight.tensor());
    if (tensor == nullptr)
      return corrupt(
          fmt::format("{}: tensor {} is missing; the file is incomplete or of another architecture",
                      source.path(), quote(weight.tensor())));
    const Status status = check(weight, *tensor);
    if (!status.ok()) return status.with_context(source.path());
    audit.tensors.push_back(tensor);
    used.insert(tensor);
  }
  for (const SourceTensor& tensor : source.tensors()) {
    if (used.contains(&tensor)) continue;
    const auto& folded = config.folded_tensors;
    if (std::find(folded.begin(), folded.end(), tensor.name) != folded.end()) {
      audit.folded.push_back(tensor.stored_name);
    } else if (may_drop(tensor.name, config)) {
      audit.dropped.push_back(tensor.stored_name);
    } else {
      return unsupported(
          fmt::format("{}: tensor {} has no place in this architecture; the model has a part that this "
                      "version does not know",
                      source.path(), quote(tensor.stored_name)));
    }
  }
  return audit;
}

}  // namespace invar
