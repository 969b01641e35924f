#include "graph/builder.h"

#include <limits>
#include <utility>

#include "base/check.h"

namespace invar {
namespace {

template <class T>
T& at(std::vector<T>& items, int32_t i) {
  CHECK(i >= 0 && size_t(i) < items.size());
  return items[i];
}

// A width beyond int32 becomes 0, which validate() refuses.
int32_t width_of(int64_t n) {
  return n <= std::numeric_limits<int32_t>::max() ? int32_t(n) : 0;
}

}  // namespace

// A name that was declared before gives the same weight: tied heads need no special case in a family.
WeightId GraphBuilder::declare(Weight weight) {
  const auto [known, is_new] = by_name_.try_emplace(weight.name, WeightId(graph_.weights.size()));
  if (is_new) {
    graph_.weights.push_back(std::move(weight));
  } else {
    const Weight& w = graph_.weights[size_t(known->second)];
    CHECK(w.kind == weight.kind && w.rows == weight.rows && w.cols == weight.cols);
  }
  return known->second;
}

namespace {

Weight make_weight(std::string name, Weight::Kind kind, int64_t rows, int64_t cols, int rotary_heads,
                   FusedPart part) {
  Weight w{std::move(name),        kind,           rows,     cols, rotary_heads,
           std::move(part.tensor), part.first_row, part.rows};
  w.row_step = part.row_step;
  w.experts = part.experts;
  w.expert = part.expert;
  w.transposed = part.transposed;
  return w;
}

}  // namespace

WeightId GraphBuilder::matrix(std::string name, int64_t rows, int64_t cols, int rotary_heads,
                              FusedPart part) {
  return declare(
      make_weight(std::move(name), Weight::Kind::kMatrix, rows, cols, rotary_heads, std::move(part)));
}

WeightId GraphBuilder::vector(std::string name, int64_t size, int rotary_heads, bool add_one,
                              FusedPart part) {
  Weight weight = make_weight(std::move(name), Weight::Kind::kVector, size, 1, rotary_heads, std::move(part));
  weight.add_one = add_one;
  return declare(std::move(weight));
}

int GraphBuilder::rope(Rope rope) {
  graph_.ropes.push_back(std::move(rope));
  return int(graph_.ropes.size() - 1);
}

int GraphBuilder::kv_group(KvGroup group) {
  group.layers = 0;
  graph_.kv_groups.push_back(group);
  return int(graph_.kv_groups.size() - 1);
}

ValueId GraphBuilder::append(Op op, const std::string& site, std::vector<ValueId> in, int32_t width,
                             Rows rows, Attr attr, WeightId weight, WeightId bias) {
  const ValueId out = ValueId(graph_.values.size());
  graph_.values.push_back({width, rows});
  graph_.nodes.push_back({op, site, std::move(in), out, weight, bias, attr});
  return out;
}

ValueId GraphBuilder::embed(const std::string& site, WeightId table) {
  return append(Op::kEmbed, site, {}, width_of(at(graph_.weights, table).cols), Rows::kTokens, {}, table);
}

ValueId GraphBuilder::rms_norm(const std::string& site, ValueId x, WeightId weight, float eps, int head_dim) {
  const Value value = at(graph_.values, x);
  return append(Op::kRmsNorm, site, {x}, value.width, value.rows, NormAttr{eps, head_dim}, weight);
}

ValueId GraphBuilder::layer_norm(const std::string& site, ValueId x, WeightId weight, WeightId bias,
                                 float eps) {
  const Value value = at(graph_.values, x);
  return append(Op::kLayerNorm, site, {x}, value.width, value.rows, NormAttr{eps, 0}, weight, bias);
}

ValueId GraphBuilder::linear(const std::string& site, ValueId x, WeightId weight, WeightId bias) {
  return append(Op::kLinear, site, {x}, width_of(at(graph_.weights, weight).rows), at(graph_.values, x).rows,
                {}, weight, bias);
}

ValueId GraphBuilder::rotate(const std::string& site, ValueId x, int rope, int heads, int head_dim) {
  const Value value = at(graph_.values, x);
  return append(Op::kRope, site, {x}, value.width, value.rows, RopeAttr{rope, heads, head_dim});
}

ValueId GraphBuilder::attend(const std::string& site, ValueId q, ValueId k, ValueId v, AttendAttr attr,
                             WeightId sinks) {
  attr.layer = at(graph_.kv_groups, attr.group).layers++;
  return append(Op::kAttend, site, {q, k, v}, width_of(int64_t{attr.heads} * attr.head_dim), Rows::kTokens,
                attr, sinks);
}

ValueId GraphBuilder::borrow(const std::string& site, ValueId q, ValueId donor) {
  for (const Node& node : graph_.nodes)
    if (node.out == donor && node.op == Op::kAttend)
      return append(Op::kAttend, site, {q}, at(graph_.values, donor).width, Rows::kTokens, node.attr);
  CHECK(false);
}

ValueId GraphBuilder::add(const std::string& site, ValueId x, ValueId y) {
  const Value value = at(graph_.values, x);
  return append(Op::kAdd, site, {x, y}, value.width, value.rows, {});
}

ValueId GraphBuilder::gated_silu(const std::string& site, ValueId gate, ValueId up) {
  const Value value = at(graph_.values, gate);
  return append(Op::kGatedSilu, site, {gate, up}, value.width, value.rows, {});
}

ValueId GraphBuilder::gated_gelu(const std::string& site, ValueId gate, ValueId up) {
  const Value value = at(graph_.values, gate);
  return append(Op::kGatedGelu, site, {gate, up}, value.width, value.rows, {});
}

ValueId GraphBuilder::map(Op op, const std::string& site, ValueId x, Attr attr) {
  const Value value = at(graph_.values, x);
  return append(op, site, {x}, value.width, value.rows, attr);
}

ValueId GraphBuilder::gelu(const std::string& site, ValueId x) {
  return map(Op::kGelu, site, x, {});
}

ValueId GraphBuilder::tanh(const std::string& site, ValueId x) {
  return map(Op::kTanh, site, x, {});
}

ValueId GraphBuilder::scale(const std::string& site, ValueId x, float factor) {
  return map(Op::kScale, site, x, FactorAttr{factor});
}

ValueId GraphBuilder::multiply(const std::string& site, ValueId x, WeightId weight) {
  const Value value = at(graph_.values, x);
  return append(Op::kMultiply, site, {x}, value.width, value.rows, {}, weight);
}

ValueId GraphBuilder::add_scaled(const std::string& site, ValueId x, ValueId y, ValueId factors, int column) {
  const Value value = at(graph_.values, x);
  return append(Op::kAddScaled, site, {x, y, factors}, value.width, value.rows, ColumnAttr{column});
}

ValueId GraphBuilder::match_rms(const std::string& site, ValueId x, ValueId like, float least_mean_square) {
  const Value value = at(graph_.values, x);
  return append(Op::kMatchRms, site, {x, like}, value.width, value.rows, FactorAttr{least_mean_square});
}

ValueId GraphBuilder::sparsify(const std::string& site, ValueId x, float deviations) {
  return map(Op::kSparsify, site, x, FactorAttr{deviations});
}

ValueId GraphBuilder::columns(const std::string& site, ValueId x, int first, int count) {
  return append(Op::kColumns, site, {x}, count, at(graph_.values, x).rows, ColumnAttr{first});
}

ValueId GraphBuilder::softcap(const std::string& site, ValueId x, float cap) {
  return map(Op::kSoftcap, site, x, FactorAttr{cap});
}

ValueId GraphBuilder::experts(const std::string& site, std::vector<ValueId> in,
                              std::vector<ExpertWeights> set, ExpertsAttr attr, WeightId scale,
                              WeightId correction) {
  CHECK(!in.empty());
  const Value x = at(graph_.values, in[0]);
  attr.set = int32_t(graph_.expert_sets.size());
  graph_.expert_sets.push_back(std::move(set));
  return append(Op::kExperts, site, std::move(in), x.width, x.rows, attr, scale, correction);
}

ValueId GraphBuilder::select_logit_rows(const std::string& site, ValueId x) {
  return append(Op::kSelectRows, site, {x}, at(graph_.values, x).width, Rows::kLogits, {});
}

Result<Graph> GraphBuilder::finish(ValueId logits, int32_t vocab) && {
  graph_.logits = logits;
  graph_.vocab = vocab;
  RETURN_IF_ERROR(graph_.validate());
  return std::move(graph_);
}

}  // namespace invar
