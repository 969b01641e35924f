#include "backends/cpu/plan_items.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

namespace invar {
namespace {

class ItemMaker {
 public:
  ItemMaker(const Graph& graph, const WeightSet& weights)
      : graph_(graph),
        weights_(weights),
        fusions_(find_fusions(graph)),
        value_buffer_(graph.values.size()),
        level_(graph.values.size(), 0),
        by_row_op_(graph.values.size(), false),
        quantized_level_(graph.values.size(), kNone),
        node_level_(graph.nodes.size(), 0) {
    std::iota(value_buffer_.begin(), value_buffer_.end(), 0);
  }

  PlanItems run() {
    add_items();
    return {std::move(items_), std::move(gathered_), std::move(value_buffer_), std::move(fusions_)};
  }

 private:
  void add_items() {
    for (size_t r = 0; r < graph_.ropes.size(); r++) {
      items_.push_back({.type = PlanItem::Type::kRow,
                        .row_op = RowOp::Kind::kRopeTable,
                        .rows = Rows::kTokens,
                        .node = int32_t(r),
                        .writes = {rope_buffer(graph_, int32_t(r))}});
    }
    for (size_t i = 0; i < graph_.nodes.size(); i++) {
      const int32_t node = int32_t(i);
      if (fusions_.into[node] != kNone) continue;
      switch (graph_.nodes[i].op) {
        case Op::kEmbed:
          add_row_node(node, RowOp::Kind::kEmbed);
          break;
        case Op::kRmsNorm:
          add_row_node(node, RowOp::Kind::kRmsNorm);
          break;
        case Op::kLayerNorm:
          add_row_node(node, RowOp::Kind::kLayerNorm);
          break;
        case Op::kRope:
          add_in_place(node, RowOp::Kind::kRope)
              .reads.push_back(rope_buffer(graph_, std::get<RopeAttr>(graph_.nodes[i].attr).rope));
          break;
        case Op::kGelu:
          add_in_place(node, RowOp::Kind::kGelu);
          break;
        case Op::kTanh:
          add_in_place(node, RowOp::Kind::kTanh);
          break;
        case Op::kScale:
          add_in_place(node, RowOp::Kind::kScale);
          break;
        case Op::kSoftcap:
          add_in_place(node, RowOp::Kind::kSoftcap);
          break;
        case Op::kMultiply:
          add_in_place(node, weights_.vectors[graph_.nodes[i].weight].size() == 1 ? RowOp::Kind::kScale
                                                                                  : RowOp::Kind::kMultiply);
          break;
        case Op::kAddScaled:
          add_in_place(node, RowOp::Kind::kAddScaled);
          break;
        case Op::kMatchRms:
          add_in_place(node, RowOp::Kind::kMatchRms);
          break;
        case Op::kSparsify:
          add_in_place(node, RowOp::Kind::kSparsify);
          break;
        case Op::kColumns:
          add_row_node(node, RowOp::Kind::kColumns);
          break;
        case Op::kSelectRows:
          add_row_node(node, RowOp::Kind::kSelect);
          break;
        case Op::kAttend:
          add_attend(node);
          break;
        case Op::kExperts:
          add_experts(node);
          break;
        case Op::kLinear:
          add_linear(node, {node});
          break;
        case Op::kAdd:
          add_element_wise(node, RowOp::Kind::kAdd);
          break;
        case Op::kGatedSilu:
          add_element_wise(node, RowOp::Kind::kGatedSilu);
          break;
        case Op::kGatedGelu:
          add_element_wise(node, RowOp::Kind::kGatedGelu);
          break;
      }
    }
    check_logits();
  }

  void check_logits() {
    const Op last = graph_.nodes[fusions_.producer[graph_.logits]].op;
    if (last != Op::kLinear) {
      items_.push_back({.type = PlanItem::Type::kRow,
                        .row_op = RowOp::Kind::kCheckFinite,
                        .rows = Rows::kLogits,
                        .value = graph_.logits,
                        .level = level_for_row_op(graph_.logits, Rows::kLogits),
                        .reads = {value_buffer_[graph_.logits]}});
    }
  }

  int32_t level_for_row_op(ValueId v, Rows rows) const {
    return by_row_op_[v] && graph_.values[v].rows == rows ? level_[v] : level_[v] + 1;
  }

  void finish_value(int32_t node, int32_t level, bool by_row_op) {
    const ValueId out = graph_.nodes[node].out;
    level_[out] = node_level_[node] = level;
    by_row_op_[out] = by_row_op;
  }

  PlanItem& add_row_node(int32_t node, RowOp::Kind kind) {
    const Node& n = graph_.nodes[node];
    PlanItem item{
        .type = PlanItem::Type::kRow, .row_op = kind, .rows = graph_.values[n.out].rows, .node = node};
    for (ValueId v : n.in) {
      item.level = std::max(item.level, level_for_row_op(v, item.rows));
      item.reads.push_back(value_buffer_[v]);
    }
    item.writes = {value_buffer_[n.out]};
    finish_value(node, item.level, true);
    items_.push_back(std::move(item));
    return items_.back();
  }

  // Overwrites its input where nobody else reads it.
  PlanItem& add_in_place(int32_t node, RowOp::Kind kind) {
    const Node& n = graph_.nodes[node];
    if (fusions_.readers[n.in[0]].size() == 1) value_buffer_[n.out] = value_buffer_[n.in[0]];
    return add_row_node(node, kind);
  }

  void add_attend(int32_t node) {
    const Node& n = graph_.nodes[node];
    const auto& attr = std::get<AttendAttr>(n.attr);
    int32_t& written = written_level_[{attr.group, attr.layer}];
    if (n.in.size() > 1) {
      PlanItem write{
          .type = PlanItem::Type::kRow, .row_op = RowOp::Kind::kKvWrite, .rows = Rows::kTokens, .node = node};
      for (int i : {1, 2}) {
        write.level = std::max(write.level, level_for_row_op(n.in[i], Rows::kTokens));
        write.reads.push_back(value_buffer_[n.in[i]]);
      }
      written = write.level;
      items_.push_back(std::move(write));
    }
    PlanItem attend{.type = PlanItem::Type::kAttend, .rows = Rows::kTokens, .node = node};
    attend.level = std::max(written, level_[n.in[0]]) + 1;
    attend.reads = {value_buffer_[n.in[0]]};
    attend.writes = {value_buffer_[n.out]};
    finish_value(node, attend.level, false);
    items_.push_back(std::move(attend));
  }

  void add_experts(int32_t node) {
    const Node& n = graph_.nodes[node];
    const int32_t set = std::get<ExpertsAttr>(n.attr).set;
    const ExpertForms forms = expert_forms(graph_.expert_sets[set], weights_);
    PlanItem item{.type = PlanItem::Type::kExperts, .rows = graph_.values[n.out].rows, .node = node};
    if (forms.quantized_in) {
      item.level = quantize(n.in[0]) + 1;
      item.reads.push_back(quantized_buffer(graph_, n.in[0]));
    }
    for (size_t i = forms.float_in ? 0 : 1; i < n.in.size(); i++) {
      item.level = std::max(item.level, level_[n.in[i]] + 1);
      item.reads.push_back(value_buffer_[n.in[i]]);
    }
    item.writes = {value_buffer_[n.out], experts_buffer(graph_, set)};
    finish_value(node, item.level, false);
    items_.push_back(std::move(item));
  }

  void add_element_wise(int32_t node, RowOp::Kind kind) {
    std::vector<int32_t> folded;
    for (ValueId v : graph_.nodes[node].in) {
      const int32_t producer = fusions_.producer[v];
      if (fusions_.into[producer] == node) folded.push_back(producer);
    }
    if (folded.empty()) {
      add_row_node(node, kind);
    } else {
      add_linear(node, folded);
    }
  }

  // `node` produces the result; `linears` are the linear nodes under it, or itself.
  void add_linear(int32_t node, const std::vector<int32_t>& linears) {
    const Node& n = graph_.nodes[node];
    const ValueId input = graph_.nodes[linears[0]].in[0];
    PlanItem item{
        .type = PlanItem::Type::kLinear, .rows = graph_.values[n.out].rows, .node = node, .value = input};
    for (int32_t linear : linears) {
      const PackedMatrix& matrix = weights_.matrices[graph_.nodes[linear].weight];
      if (is_float(*matrix.form)) {
        item.level = std::max(item.level, level_[input] + 1);
        item.reads.push_back(value_buffer_[input]);
      } else if (matrix.form->gathered) {
        const int32_t i = quantize_gathered(input, matrix);
        item.level = std::max(item.level, gathered_[size_t(i)].level + 1);
        item.reads.push_back(gathered_buffer(graph_, i));
      } else {
        item.level = std::max(item.level, quantize(input) + 1);
        item.reads.push_back(quantized_buffer(graph_, input));
      }
    }
    if (const ValueId x = fusions_.residual[node]; x != kNone) {
      item.level = std::max(item.level, level_[x] + 1);
      for (int32_t reader : fusions_.readers[x]) {  // overwritten here: after everyone who reads it
        if (reader != node) item.level = std::max(item.level, node_level_[fusions_.place(reader)] + 1);
      }
      value_buffer_[n.out] = value_buffer_[x];
      item.reads.push_back(value_buffer_[x]);
    }
    item.writes = {value_buffer_[n.out]};
    finish_value(node, item.level, false);
    items_.push_back(std::move(item));
  }

  // Level of the quantized rows of v; every reader shares them.
  int32_t quantize(ValueId v) {
    if (quantized_level_[v] == kNone) {
      const Rows rows = graph_.values[v].rows;
      quantized_level_[v] = level_for_row_op(v, rows);
      items_.push_back({.type = PlanItem::Type::kRow,
                        .row_op = RowOp::Kind::kQuantize,
                        .rows = rows,
                        .value = v,
                        .level = quantized_level_[v],
                        .reads = {value_buffer_[v]},
                        .writes = {quantized_buffer(graph_, v)}});
    }
    return quantized_level_[v];
  }

  // The same in the order of a matrix's columns, which matrices of equal ones share.
  int32_t quantize_gathered(ValueId v, const PackedMatrix& matrix) {
    if (const int32_t found = find_gathered(gathered_, v, matrix); found != kNone) return found;
    const Rows rows = graph_.values[v].rows;
    const auto added = int32_t(gathered_.size());
    gathered_.push_back({v, matrix.columns(), level_for_row_op(v, rows)});
    items_.push_back({.type = PlanItem::Type::kRow,
                      .row_op = RowOp::Kind::kQuantize,
                      .rows = rows,
                      .value = v,
                      .columns = matrix.columns(),
                      .level = gathered_.back().level,
                      .reads = {value_buffer_[v]},
                      .writes = {gathered_buffer(graph_, added)}});
    return added;
  }

  const Graph& graph_;
  const WeightSet& weights_;
  Fusions fusions_;
  std::vector<PlanItem> items_;
  std::vector<GatheredValue> gathered_;
  std::vector<int32_t> value_buffer_;                             // [values]
  std::vector<int32_t> level_;                                    // [values]
  std::vector<bool> by_row_op_;                                   // [values]: its producer is a row op
  std::vector<int32_t> quantized_level_;                          // [values] or kNone
  std::vector<int32_t> node_level_;                               // [nodes]
  std::map<std::pair<int32_t, int32_t>, int32_t> written_level_;  // of a group's layer
};

}  // namespace

int32_t find_gathered(const std::vector<GatheredValue>& all, ValueId v, const PackedMatrix& matrix) {
  for (size_t i = 0; i < all.size(); i++)
    if (all[i].value == v && std::memcmp(all[i].columns, matrix.columns(), size_t(matrix.cols) * 4) == 0)
      return int32_t(i);
  return kNone;
}

ExpertForms expert_forms(const std::vector<ExpertWeights>& set, const WeightSet& weights) {
  ExpertForms forms;
  const auto floats = [&](WeightId id) { return is_float(*weights.matrices[id].form); };
  for (const ExpertWeights& expert : set) {
    for (const WeightId id : {expert.gate, expert.up}) {
      (floats(id) ? forms.float_in : forms.quantized_in) = true;
      forms.float_in |= weights.matrices[id].form->gathered;
    }
    forms.quantized_down |= !floats(expert.down);
  }
  return forms;
}

PlanItems make_plan_items(const Graph& graph, const WeightSet& weights) {
  return ItemMaker(graph, weights).run();
}

}  // namespace invar
