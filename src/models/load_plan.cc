#include "models/load_plan.h"

#include "base/error_text.h"

namespace invar {
namespace {

std::vector<PackedEntry> entries(const ModelSource& source, const Family& family, const Graph& graph,
                                 const Audit& audit) {
  const bool interleaved = source.kind() == SourceKind::kGguf && family.gguf_interleaves;
  std::vector<PackedEntry> out;
  out.reserve(graph.weights.size());
  for (size_t i = 0; i < graph.weights.size(); ++i) {
    const Weight& w = graph.weights[i];
    const PackedForm* form = w.kind == Weight::Kind::kMatrix ? audit.tensors[i]->type->form : nullptr;
    const int64_t head_dim = interleaved && w.rotary_heads > 0 ? w.rows / w.rotary_heads : 0;
    out.push_back({.section = {w.name, form, w.rows, w.cols},
                   .source = audit.tensors[i],
                   .order = {head_dim, w.row_step},
                   .first_row = w.first_row,
                   .add_one = w.add_one,
                   .experts = w.experts,
                   .expert = w.expert,
                   .transposed = w.transposed});
  }
  return out;
}

}  // namespace

Result<LoadPlan> plan_load(const ModelSource& source, const RopeOverride& rope) {
  LoadPlan plan;
  ASSIGN_OR_RETURN(plan.family, find_family(source));
  auto config = plan.family->parse(source);
  if (!config.ok())
    return located(with_remedy(config.status(), "correct the file, or fetch or convert the model again"),
                   source.path());
  plan.config = *std::move(config);
  RETURN_IF_ERROR(apply(rope, &plan.config));
  ASSIGN_OR_RETURN(plan.graph, plan.family->build(plan.config));
  ASSIGN_OR_RETURN(plan.audit, audit_tensors(source, plan.config, plan.graph));
  plan.entries = entries(source, *plan.family, plan.graph, plan.audit);
  return plan;
}

}  // namespace invar
