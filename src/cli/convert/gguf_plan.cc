#include "cli/convert/gguf_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_map>

#include "base/quote.h"
#include "cli/convert/weight_rows.h"
#include "format/gguf_names.h"
#include "models/rope_scaling.h"

namespace invar {
namespace {

Result<const Family*> gguf_family(const ModelSource& source, const Family& family) {
  if (family.gguf != nullptr)
    for (const Family& other : families())
      if (std::string_view(other.name) == family.gguf) return &other;
  return unsupported(
      fmt::format("{}: GGUF has no form of {} that this version writes; without DST it is packed",
                  source.path(), family.name));
}

ModelConfig gguf_config(ModelConfig c) {
  c.norms_less_one = false;
  c.unused_layers = 0;
  if (c.experts.storage != ExpertStorage::kFused) c.experts.storage = ExpertStorage::kStacked;
  return c;
}

Status add_tensors(const ModelSource& source, GgufPlan& plan) {
  std::unordered_map<std::string, size_t> by_name;
  for (size_t i = 0; i < plan.to.weights.size(); ++i) {
    const Weight& w = plan.to.weights[i];
    const std::string name = gguf_name(w.tensor(), plan.family->name);
    if (name.empty())
      return unsupported(
          fmt::format("{}: GGUF files of {} have no name for tensor {}; without DST it is packed",
                      source.path(), plan.family->name, quote(w.tensor())));
    const auto [at, is_new] = by_name.emplace(name, plan.tensors.size());
    if (is_new)
      plan.tensors.push_back(
          {name,
           gguf_shape(w),
           &lossless_type(*plan.audit.tensors[i]),
           w.kind == Weight::Kind::kVector || name.find("ffn_gate_inp") != std::string::npos,
           {}});
    CHECK(w.row_step == 1 && !w.transposed);
    const int64_t rows = w.fused.empty() ? w.rows : w.fused_rows;
    plan.tensors[at->second].pieces.push_back({static_cast<int32_t>(i), w.expert * rows + w.first_row});
  }
  for (PlannedTensor& t : plan.tensors)
    std::sort(t.pieces.begin(), t.pieces.end(),
              [](const PlannedPiece& a, const PlannedPiece& b) { return a.first_row < b.first_row; });
  return {};
}

// The divisor that a reader gets `scaled` from, exactly if some float gives it.
float divisor_of(float plain, float scaled) {
  if (scaled == 0) return 1e30f;
  const float near = static_cast<float>(static_cast<double>(plain) / static_cast<double>(scaled));
  for (const float d : {near, std::nextafter(near, 0.0f), std::nextafter(near, 2 * near)})
    if (plain / d == scaled) return d;
  return near;
}

Status add_factors(GgufPlan& plan) {
  const ModelConfig& c = plan.config;
  const RopeScaling scaling = c.rope_recipe ? c.rope_recipe->scaling : RopeScaling{};
  if (scaling.rule == RopeRule::kLongrope) {
    plan.factors.push_back({"rope_factors_long.weight", scaling.long_factor});
    plan.factors.push_back({"rope_factors_short.weight", scaling.short_factor});
    return {};
  }
  if (scaling.rule == RopeRule::kLinear || scaling.rule == RopeRule::kYarn) return {};
  ASSIGN_OR_RETURN(const Rope plain, make_rope(c.theta, c.rope.dim, {}));
  if (plain.inv_freq == c.rope.inv_freq) return {};
  PlannedFactors divisors{"rope_freqs.weight", {}};
  for (size_t i = 0; i < plain.inv_freq.size(); ++i)
    divisors.values.push_back(divisor_of(plain.inv_freq[i], c.rope.inv_freq[i]));
  plan.factors.push_back(std::move(divisors));
  return {};
}

}  // namespace

std::vector<int64_t> gguf_shape(const Weight& w) {
  std::vector<int64_t> shape = {w.fused.empty() ? w.rows : w.fused_rows};
  if (w.kind == Weight::Kind::kMatrix) {
    if (shape[0] == 1 && w.experts == 0) shape.clear();  // GGUF has a matrix of one row as a vector
    shape.push_back(w.cols);
  }
  if (w.experts > 0) shape.insert(shape.begin(), w.experts);
  return shape;
}

int64_t GgufPlan::channel(int32_t weight, int64_t row) const {
  const Weight& w = to.weights[static_cast<size_t>(weight)];
  if (!family->gguf_interleaves || w.rotary_heads == 0) return row;
  const int64_t head_dim = w.rows / w.rotary_heads, head = row / head_dim, in_head = row % head_dim;
  return head * head_dim + in_head % 2 * (head_dim / 2) + in_head / 2;
}

void GgufPlan::read_row(int32_t weight, int64_t row, float* out) const {
  const auto i = static_cast<size_t>(weight);
  const Weight& w = from.weights[i];
  invar::read_row(stored_matrix(w, *audit.tensors[i]), stored_row(w, channel(weight, row)), out);
  if (w.add_one && !to.weights[i].add_one)
    for (int64_t c = 0; c < w.cols; ++c)
      out[c] += 1.0f;
}

Result<GgufPlan> plan_gguf(const ModelSource& source) {
  ASSIGN_OR_RETURN(const Family* family, find_family(source));
  GgufPlan plan;
  ASSIGN_OR_RETURN(plan.family, gguf_family(source, *family));
  ASSIGN_OR_RETURN(const ModelConfig config, family->parse(source));
  ASSIGN_OR_RETURN(plan.from, family->build(config));
  ASSIGN_OR_RETURN(plan.audit, audit_tensors(source, config, plan.from));
  plan.config = gguf_config(config);
  ASSIGN_OR_RETURN(plan.to, plan.family->build(plan.config));
  CHECK(plan.from.weights.size() == plan.to.weights.size());
  RETURN_IF_ERROR(add_tensors(source, plan));
  RETURN_IF_ERROR(add_factors(plan));
  return plan;
}

}  // namespace invar
