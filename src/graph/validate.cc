// Graph::validate: the rules that every backend relies on, so that none of them checks again.

#include <fmt/format.h>

#include <cmath>
#include <unordered_set>

#include "graph/graph.h"

namespace invar {
namespace {

class Validator {
 public:
  explicit Validator(const Graph& graph) : graph_(graph) {}

  Status run() {
    RETURN_IF_ERROR(check_tables());
    produced_.assign(graph_.values.size(), false);
    attended_.resize(graph_.kv_groups.size());
    for (size_t g = 0; g < graph_.kv_groups.size(); g++)
      attended_[g].assign(graph_.kv_groups[g].layers, false);
    std::unordered_set<std::string> sites;
    for (const Node& node : graph_.nodes) {
      if (node.site.empty())
        return invalid_argument(fmt::format("graph: a {} node has no site", op_name(node.op)));
      if (!sites.insert(node.site).second) return error(node, "the site is used twice");
      RETURN_IF_ERROR(check_node(node));
      produced_[node.out] = true;
    }
    return check_results();
  }

 private:
  static Status error(const Node& node, const std::string& what) {
    return invalid_argument(fmt::format("graph node '{}' ({}): {}", node.site, op_name(node.op), what));
  }

  Status check_tables() {
    std::unordered_set<std::string> names;
    for (const Weight& w : graph_.weights) {
      const auto bad = [&](const char* what) {
        return invalid_argument(fmt::format("graph weight '{}': {}", w.name, what));
      };
      if (!names.insert(w.name).second) return bad("the name is used twice");
      if (w.rows <= 0 || w.cols <= 0) return bad("the shape is empty");
      if (w.kind == Weight::Kind::kVector && w.cols != 1) return bad("a vector has one column");
      if (w.rotary_heads < 0 || (w.rotary_heads > 0 && w.rows % (2 * int64_t{w.rotary_heads}) != 0)) {
        return bad("its rows are not whole pairs of every rotary head");
      }
      if (w.row_step < 1) return bad("its rows do not ascend");
      const int64_t past_first = w.fused_rows - w.first_row;  // its rows and those between them
      if (!w.fused.empty() &&
          (w.first_row < 0 || past_first < 1 || w.rows - 1 > (past_first - 1) / w.row_step)) {
        return bad("its rows are not within the tensor that it is a part of");
      }
      if (w.expert < 0 || w.expert > w.experts || (w.experts > 0 && w.expert == w.experts)) {
        return bad("the stack that it is a part of is too small");
      }
      if ((w.experts > 0 || w.row_step > 1) && w.fused.empty()) return bad("it is a part of nothing");
      if (w.transposed && w.kind != Weight::Kind::kMatrix) return bad("a transposed vector");
      if (w.rotary_heads > 0 && (w.transposed || w.row_step > 1)) return bad("its rows are reordered twice");
    }
    for (size_t r = 0; r < graph_.ropes.size(); r++) {
      const Rope& rope = graph_.ropes[r];
      if (rope.dim <= 0 || rope.dim % 2 != 0 || rope.inv_freq.size() != size_t(rope.dim / 2)) {
        return invalid_argument(
            fmt::format("graph rope {}: {} frequencies for dimension {}", r, rope.inv_freq.size(), rope.dim));
      }
      if (!rope.long_inv_freq.empty() && rope.long_inv_freq.size() != rope.inv_freq.size()) {
        return invalid_argument(fmt::format("graph rope {}: {} frequencies for long prompts, needs {}", r,
                                            rope.long_inv_freq.size(), rope.inv_freq.size()));
      }
    }
    for (size_t g = 0; g < graph_.kv_groups.size(); g++) {
      const KvGroup& group = graph_.kv_groups[g];
      if (group.layers <= 0 || group.kv_heads <= 0 || group.head_dim <= 0 || group.window < 0) {
        return invalid_argument(
            fmt::format("graph KV group {}: {} layers, {} KV heads, head dimension {}, window {}", g,
                        group.layers, group.kv_heads, group.head_dim, group.window));
      }
    }
    for (const Value& v : graph_.values) {
      if (v.width <= 0) return invalid_argument("graph: a value has no width");
    }
    return {};
  }

  const Value& in(const Node& node, size_t i) const { return graph_.values[node.in[i]]; }
  const Value& out(const Node& node) const { return graph_.values[node.out]; }

  Status check_node(const Node& node) {
    const auto valid = [&](ValueId v) { return v >= 0 && size_t(v) < graph_.values.size(); };
    for (ValueId v : node.in) {
      if (!valid(v)) return error(node, fmt::format("input {} does not exist", v));
      if (!produced_[v]) return error(node, fmt::format("input %{} is not produced by an earlier node", v));
    }
    if (!valid(node.out)) return error(node, fmt::format("output {} does not exist", node.out));
    if (produced_[node.out]) return error(node, fmt::format("output %{} is already produced", node.out));
    switch (node.op) {
      case Op::kEmbed:
        return check_embed(node);
      case Op::kRmsNorm:
        return check_norm(node);
      case Op::kLayerNorm:
        return check_layer_norm(node);
      case Op::kLinear:
        return check_linear(node);
      case Op::kRope:
        return check_rope(node);
      case Op::kAttend:
        return check_attend(node);
      case Op::kAdd:
      case Op::kGatedSilu:
      case Op::kGatedGelu:
        return check_element_wise(node, 2);
      case Op::kGelu:
      case Op::kTanh:
        return check_element_wise(node, 1);
      case Op::kScale:
      case Op::kSoftcap:
      case Op::kSparsify:
        return check_factor(node, 1);
      case Op::kMatchRms:
        return check_factor(node, 2);
      case Op::kMultiply:
        return check_multiply(node);
      case Op::kAddScaled:
        return check_add_scaled(node);
      case Op::kColumns:
        return check_columns(node);
      case Op::kSelectRows:
        return check_select(node);
      case Op::kExperts:
        return check_experts(node);
    }
    return error(node, "unknown op");
  }

  Status check_inputs(const Node& node, size_t count) const {
    if (node.in.size() == count) return {};
    return error(node, fmt::format("{} inputs, needs {}", node.in.size(), count));
  }
  Status check_weight(const Node& node, WeightId id, Weight::Kind kind, int64_t rows, int64_t cols) const {
    if (id < 0 || size_t(id) >= graph_.weights.size()) return error(node, "its weight does not exist");
    const Weight& w = graph_.weights[id];
    if (w.kind != kind) return error(node, fmt::format("weight '{}' is of the wrong kind", w.name));
    if (w.rows == rows && w.cols == cols) return {};
    return error(node,
                 fmt::format("weight '{}' is [{}, {}], needs [{}, {}]", w.name, w.rows, w.cols, rows, cols));
  }
  Status check_same(const Node& node, const Value& a, const Value& b) const {
    if (a.rows != b.rows) return error(node, "token rows meet logit rows");
    if (a.width != b.width) return error(node, fmt::format("widths {} and {} differ", a.width, b.width));
    return {};
  }

  Status check_embed(const Node& node) const {
    RETURN_IF_ERROR(check_inputs(node, 0));
    if (out(node).rows != Rows::kTokens) return error(node, "its output must have token rows");
    const bool shorter = node.weight >= 0 && size_t(node.weight) < graph_.weights.size() &&
                         graph_.weights[node.weight].rows < graph_.vocab;
    return check_weight(node, node.weight, Weight::Kind::kMatrix,
                        shorter ? graph_.weights[node.weight].rows : graph_.vocab, out(node).width);
  }

  Status check_norm(const Node& node) const {
    RETURN_IF_ERROR(check_inputs(node, 1));
    RETURN_IF_ERROR(check_same(node, in(node, 0), out(node)));
    const auto* attr = std::get_if<NormAttr>(&node.attr);
    if (attr == nullptr) return error(node, "NormAttr is missing");
    if (!(attr->eps >= 0)) return error(node, "eps is negative or NaN");
    const int32_t n = attr->head_dim == 0 ? out(node).width : attr->head_dim;
    if (n <= 0 || out(node).width % n != 0) {
      return error(node, fmt::format("width {} is not whole heads of {}", out(node).width, n));
    }
    if (node.op == Op::kRmsNorm && node.weight == kNone) return {};
    return check_weight(node, node.weight, Weight::Kind::kVector, n, 1);
  }

  Status check_layer_norm(const Node& node) const {
    RETURN_IF_ERROR(check_norm(node));
    if (std::get<NormAttr>(node.attr).head_dim != 0) return error(node, "normalizes whole rows only");
    return check_weight(node, node.bias, Weight::Kind::kVector, out(node).width, 1);
  }

  Status check_linear(const Node& node) const {
    RETURN_IF_ERROR(check_inputs(node, 1));
    if (in(node, 0).rows != out(node).rows) return error(node, "token rows meet logit rows");
    RETURN_IF_ERROR(
        check_weight(node, node.weight, Weight::Kind::kMatrix, out(node).width, in(node, 0).width));
    if (node.bias == kNone) return {};
    return check_weight(node, node.bias, Weight::Kind::kVector, out(node).width, 1);
  }

  Status check_rope(const Node& node) const {
    RETURN_IF_ERROR(check_inputs(node, 1));
    RETURN_IF_ERROR(check_same(node, in(node, 0), out(node)));
    if (out(node).rows != Rows::kTokens) return error(node, "rotates token rows only");
    const auto* attr = std::get_if<RopeAttr>(&node.attr);
    if (attr == nullptr) return error(node, "RopeAttr is missing");
    if (attr->rope < 0 || size_t(attr->rope) >= graph_.ropes.size())
      return error(node, "its rope does not exist");
    if (attr->heads <= 0 || attr->head_dim <= 0 || int64_t{attr->heads} * attr->head_dim != out(node).width) {
      return error(
          node, fmt::format("width {} is not {} heads of {}", out(node).width, attr->heads, attr->head_dim));
    }
    if (graph_.ropes[attr->rope].dim > attr->head_dim) return error(node, "the rope is wider than a head");
    return {};
  }

  Status check_attend(const Node& node) {
    const bool borrows = node.in.size() == 1;
    RETURN_IF_ERROR(check_inputs(node, borrows ? 1 : 3));
    const auto* attr = std::get_if<AttendAttr>(&node.attr);
    if (attr == nullptr) return error(node, "AttendAttr is missing");
    if (attr->group < 0 || size_t(attr->group) >= graph_.kv_groups.size()) {
      return error(node, fmt::format("KV group {} does not exist", attr->group));
    }
    const KvGroup& group = graph_.kv_groups[attr->group];
    if (attr->layer < 0 || attr->layer >= group.layers) {
      return error(node, fmt::format("layer {} of a KV group of {} layers", attr->layer, group.layers));
    }
    if (borrows && !attended_[attr->group][attr->layer]) {
      return error(node, fmt::format("layer {} of KV group {} is not yet written", attr->layer, attr->group));
    }
    if (!borrows && attended_[attr->group][attr->layer]) {
      return error(node, fmt::format("layer {} of KV group {} is written twice", attr->layer, attr->group));
    }
    attended_[attr->group][attr->layer] = true;
    if (attr->kv_heads != group.kv_heads || attr->head_dim != group.head_dim) {
      return error(node, "its KV heads or head dimension differ from its KV group's");
    }
    if (attr->heads <= 0 || attr->heads % attr->kv_heads != 0) {
      return error(node,
                   fmt::format("{} heads are not a multiple of {} KV heads", attr->heads, attr->kv_heads));
    }
    if (int64_t{attr->heads} * attr->head_dim != out(node).width) {
      return error(
          node, fmt::format("width {} is not {} heads of {}", out(node).width, attr->heads, attr->head_dim));
    }
    const Value q{out(node).width, Rows::kTokens};
    const Value kv{attr->kv_heads * attr->head_dim, Rows::kTokens};  // divides q's width: no overflow
    RETURN_IF_ERROR(check_same(node, in(node, 0), q));
    for (size_t i = 1; i < node.in.size(); i++)
      RETURN_IF_ERROR(check_same(node, in(node, i), kv));
    if (!(attr->softcap >= 0)) return error(node, "softcap is negative or NaN");
    if (node.weight != kNone) {
      RETURN_IF_ERROR(check_weight(node, node.weight, Weight::Kind::kVector, attr->heads, 1));
    }
    return check_same(node, out(node), q);
  }

  Status check_element_wise(const Node& node, size_t inputs) const {
    RETURN_IF_ERROR(check_inputs(node, inputs));
    RETURN_IF_ERROR(check_same(node, in(node, 0), in(node, inputs - 1)));
    return check_same(node, in(node, 0), out(node));
  }

  Status check_factor(const Node& node, size_t inputs) const {
    const auto* attr = std::get_if<FactorAttr>(&node.attr);
    if (attr == nullptr) return error(node, "FactorAttr is missing");
    if (!std::isfinite(attr->factor)) return error(node, "its factor is not finite");
    if (node.op == Op::kSoftcap && !(attr->factor > 0)) return error(node, "its cap is not positive");
    if (node.op == Op::kMatchRms && !(attr->factor > 0))
      return error(node, "its least mean square is not positive");
    return check_element_wise(node, inputs);
  }

  Status check_multiply(const Node& node) const {
    RETURN_IF_ERROR(check_element_wise(node, 1));
    const bool one = node.weight >= 0 && size_t(node.weight) < graph_.weights.size() &&
                     graph_.weights[node.weight].rows == 1;
    return check_weight(node, node.weight, Weight::Kind::kVector, one ? 1 : out(node).width, 1);
  }

  Status check_add_scaled(const Node& node) const {
    RETURN_IF_ERROR(check_inputs(node, 3));
    RETURN_IF_ERROR(check_same(node, in(node, 0), in(node, 1)));
    RETURN_IF_ERROR(check_same(node, in(node, 0), out(node)));
    return check_column(node, in(node, 2), 1);
  }

  Status check_columns(const Node& node) const {
    RETURN_IF_ERROR(check_inputs(node, 1));
    return check_column(node, in(node, 0), out(node).width);
  }

  // `count` columns from the node's on lie within `from`, whose rows are those of the result.
  Status check_column(const Node& node, const Value& from, int32_t count) const {
    const auto* attr = std::get_if<ColumnAttr>(&node.attr);
    if (attr == nullptr) return error(node, "ColumnAttr is missing");
    if (from.rows != out(node).rows) return error(node, "token rows meet logit rows");
    if (attr->column < 0 || attr->column >= from.width || count > from.width - attr->column) {
      return error(node, fmt::format("columns {} to {} of {}", attr->column, int64_t{attr->column} + count,
                                     from.width));
    }
    return {};
  }

  Status check_select(const Node& node) const {
    RETURN_IF_ERROR(check_inputs(node, 1));
    if (in(node, 0).rows != Rows::kTokens || out(node).rows != Rows::kLogits) {
      return error(node, "must turn token rows into logit rows");
    }
    if (in(node, 0).width != out(node).width) return error(node, "changes the width");
    return {};
  }

  Status check_expert(const Node& node, const ExpertWeights& expert, const ExpertWeights& first) const {
    const auto known = [&](WeightId id) { return id >= 0 && size_t(id) < graph_.weights.size(); };
    if (!known(first.gate)) return error(node, "its first expert has no gate");
    const int64_t ffn = graph_.weights[first.gate].rows, hidden = out(node).width;
    RETURN_IF_ERROR(check_weight(node, expert.gate, Weight::Kind::kMatrix, ffn, hidden));
    RETURN_IF_ERROR(check_weight(node, expert.up, Weight::Kind::kMatrix, ffn, hidden));
    RETURN_IF_ERROR(check_weight(node, expert.down, Weight::Kind::kMatrix, hidden, ffn));
    for (const auto bias : {&ExpertWeights::gate_bias, &ExpertWeights::up_bias, &ExpertWeights::down_bias}) {
      if ((expert.*bias == kNone) != (first.*bias == kNone)) {
        return error(node, "some of its experts have a bias that others lack");
      }
      if (expert.*bias == kNone) continue;
      const int64_t size = bias == &ExpertWeights::down_bias ? hidden : ffn;
      RETURN_IF_ERROR(check_weight(node, expert.*bias, Weight::Kind::kVector, size, 1));
    }
    return {};
  }

  Status check_experts(const Node& node) const {
    if (node.in.size() < 2 || node.in.size() > 4) {
      return error(node, fmt::format("{} inputs, needs 2 to 4", node.in.size()));
    }
    const auto* attr = std::get_if<ExpertsAttr>(&node.attr);
    if (attr == nullptr) return error(node, "ExpertsAttr is missing");
    if (attr->set < 0 || size_t(attr->set) >= graph_.expert_sets.size()) {
      return error(node, "its set of experts does not exist");
    }
    const std::vector<ExpertWeights>& set = graph_.expert_sets[attr->set];
    if (set.empty() || set.size() > kMaxExperts) return error(node, fmt::format("{} experts", set.size()));
    const int32_t experts = int32_t(set.size());
    if (attr->chosen < 1 || attr->chosen > experts) {
      return error(node, fmt::format("chooses {} of {} experts", attr->chosen, experts));
    }
    if (!std::isfinite(attr->scale) || !std::isfinite(attr->alpha) || !(attr->sum_floor >= 0)) {
      return error(node, "scale, alpha or sum_floor is not a fit number");
    }
    if (attr->unit == GatedUnit::kClampedSilu && !(attr->limit > 0)) {
      return error(node, "its limit is not positive");
    }
    RETURN_IF_ERROR(check_same(node, in(node, 0), out(node)));
    RETURN_IF_ERROR(check_same(node, in(node, 1), {experts, out(node).rows}));
    if (node.in.size() > 2) RETURN_IF_ERROR(check_same(node, in(node, 2), out(node)));
    if (node.in.size() > 3) RETURN_IF_ERROR(check_same(node, in(node, 3), {1, out(node).rows}));
    for (const WeightId vector : {node.weight, node.bias}) {
      if (vector == kNone) continue;
      RETURN_IF_ERROR(check_weight(node, vector, Weight::Kind::kVector, experts, 1));
    }
    for (const ExpertWeights& expert : set)
      RETURN_IF_ERROR(check_expert(node, expert, set.front()));
    return {};
  }

  Status check_results() const {
    if (graph_.logits < 0 || size_t(graph_.logits) >= produced_.size() || !produced_[graph_.logits]) {
      return invalid_argument("graph: no node produces the logits");
    }
    const Value& logits = graph_.values[graph_.logits];
    if (logits.rows != Rows::kLogits || logits.width != graph_.vocab) {
      return invalid_argument(fmt::format("graph: logits have width {} for a vocabulary of {}, or token rows",
                                          logits.width, graph_.vocab));
    }
    for (size_t g = 0; g < attended_.size(); g++) {
      for (size_t layer = 0; layer < attended_[g].size(); layer++) {
        if (!attended_[g][layer]) {
          return invalid_argument(fmt::format("graph KV group {}: no node writes layer {}", g, layer));
        }
      }
    }
    return {};
  }

  const Graph& graph_;
  std::vector<bool> produced_;               // [values]
  std::vector<std::vector<bool>> attended_;  // [groups][layers]
};

}  // namespace

Status Graph::validate() const {
  return Validator(*this).run();
}

}  // namespace invar
