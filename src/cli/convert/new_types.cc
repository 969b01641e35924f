#include "cli/convert/new_types.h"

#include <algorithm>
#include <string>
#include <unordered_set>

#include "cli/convert/convert.h"
#include "cli/convert/encode_rows.h"
#include "cli/convert/gguf_plan.h"
#include "cli/convert/routers.h"
#include "format/gguf_names.h"

namespace invar {
namespace {

double bits_of(const SourceTensor& t) {
  return 8.0 * double(source_bytes(t)) / double(std::max<int64_t>(1, element_count(t.shape)));
}

const WeightType& mlx_type(const SourceTensor& t) {
  return known_weight_type(affine_scale_dtype(*t.type) == Dtype::kBF16 ? "MLX4_BF16" : "MLX4_F16");
}

// The name that the rules of GGUF know a tensor by; its own where GGUF has none.
std::string ruled_name(const ModelSource& source, const Family& family, const SourceTensor& t) {
  if (source.kind() == SourceKind::kGguf) return t.stored_name;
  std::string name = gguf_name(t.name, family.gguf != nullptr ? family.gguf : family.name);
  if (name.empty()) name = t.name;
  return name.ends_with(".weight") ? name : name + ".weight";
}

const WeightType& new_type(const ModelSource& source, const LoadPlan& plan, const Weight& w,
                           const SourceTensor& t, const QuantizeOptions& options) {
  const double bits = bits_of(t);
  if (options.type == nullptr) {
    const double mlx_bits = 4 + 32.0 / kMlx4Group;
    return t.shape.size() >= 2 && w.cols % kMlx4Group == 0 && bits > mlx_bits ? mlx_type(t) : *t.type;
  }
  const bool stored_for_gguf = source.kind() == SourceKind::kGguf;
  return converted_type({.gguf_name = ruled_name(source, *plan.family, t),
                         .shape = stored_for_gguf ? t.shape : gguf_shape(w),
                         .type = *t.type,
                         .bits = bits},
                        options.type);
}

bool is_code(const WeightType& type) {
  return !is_float(*type.form);
}

}  // namespace

// Whether experts are read as transposed is decided by the type of their matrices
// (models/experts_config.cc), so all of them are turned or none.
NewTypes new_types(const ModelSource& source, const LoadPlan& plan, const QuantizeOptions& options) {
  NewTypes all;
  const std::unordered_set<WeightId> choosing = routers(plan.graph);
  for (size_t i = 0; i < plan.graph.weights.size(); ++i) {
    const Weight& w = plan.graph.weights[i];
    if (w.kind != Weight::Kind::kMatrix || choosing.contains(WeightId(i))) continue;
    const SourceTensor& t = *plan.audit.tensors[i];
    if (!all.contains(&t)) all[&t] = {stored_matrix(w, t), &new_type(source, plan, w, t, options)};
  }
  const bool turn = std::all_of(all.begin(), all.end(), [](const auto& entry) {
    return !entry.second.matrix.transposed || is_code(*entry.second.type);
  });
  for (auto& [t, to] : all) {
    if (!to.matrix.transposed || turn) continue;
    if (is_code(*to.type)) to.type = t->type;
    to.matrix = {.tensor = t, .rows = element_count(t->shape) / t->shape.back(), .cols = t->shape.back()};
  }
  std::erase_if(all, [](const auto& entry) { return entry.second.type == entry.first->type; });
  return all;
}

}  // namespace invar
