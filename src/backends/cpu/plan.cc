#include "backends/cpu/plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "backends/cpu/check_weights.h"
#include "backends/cpu/fusion.h"
#include "graph/memory_plan.h"
#include "kernels/kernel_table.h"

namespace invar {
namespace {

// Work that lands in a phase: nodes, and what the backend adds to them. Items of one phase keep their order.
struct Item {
  enum class Type : uint8_t { kRow, kLinear, kAttend };
  Type type;
  RowOp::Kind row_op{};  // kRow
  Rows rows;
  int32_t node = kNone;   // the node whose attributes it takes; kRopeTable: the number of the rope
  ValueId value = kNone;  // kLinear: the shared input; kQuantize, kCheckFinite: what it reads
  int32_t level = 0;      // phases of a level are independent of each other and read lower levels only
  int32_t phase = kNone;
  std::vector<int32_t> reads, writes;  // buffers
};

struct PlannedBuffer {
  size_t row_bytes = 0;
  Rows rows = Rows::kTokens;
  int32_t first_phase = std::numeric_limits<int32_t>::max();
  int32_t last_phase = -1;
  bool row_ops_only = true;
  RowsRef ref;
};

class Planner {
 public:
  Planner(const Graph& graph, const WeightSet& weights, const ExecutableLimits& limits)
      : graph_(graph), weights_(weights), limits_(limits), fusions_(find_fusions(graph)) {
    const size_t values = graph.values.size();
    buffers_.resize(2 * values + graph.ropes.size());
    value_buffer_.resize(values);
    for (size_t v = 0; v < values; v++) {
      const Value& value = graph.values[v];
      value_buffer_[v] = int32_t(v);
      buffers_[v].rows = buffers_[values + v].rows = value.rows;
      buffers_[v].row_bytes = round_up(size_t(value.width) * sizeof(float), 64);
      buffers_[values + v].row_bytes = quantized_row_bytes(value.width);
    }
    for (size_t r = 0; r < graph.ropes.size(); r++) {
      buffers_[2 * values + r].row_bytes = round_up(size_t(graph.ropes[r].dim) * sizeof(float), 64);
    }
    level_.assign(values, 0);
    by_row_op_.assign(values, false);
    quantized_level_.assign(values, kNone);
    node_level_.assign(graph.nodes.size(), 0);
  }

  StepPlan run() {
    add_items();
    collect_phases();
    place_buffers();
    StepPlan plan;
    plan.phases = emit_phases();
    plan.scratch_bytes = scratch_bytes_;
    plan.worker_row_bytes = worker_row_bytes_;
    plan.logits = value_ref(graph_.logits);
    return plan;
  }

 private:
  int32_t quantized_buffer(ValueId v) const { return int32_t(graph_.values.size()) + v; }
  int32_t rope_buffer(int32_t rope) const { return int32_t(2 * graph_.values.size()) + rope; }
  const RowsRef& value_ref(ValueId v) const { return buffers_[value_buffer_[v]].ref; }

  // ---- items and levels

  void add_items() {
    for (size_t r = 0; r < graph_.ropes.size(); r++) {
      items_.push_back({.type = Item::Type::kRow,
                        .row_op = RowOp::Kind::kRopeTable,
                        .rows = Rows::kTokens,
                        .node = int32_t(r),
                        .writes = {rope_buffer(int32_t(r))}});
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
        case Op::kRope:
          add_rope(node);
          break;
        case Op::kSelectRows:
          add_row_node(node, RowOp::Kind::kSelect);
          break;
        case Op::kAttend:
          add_attend(node);
          break;
        case Op::kLinear:
          add_linear(node, {node});
          break;
        case Op::kAdd:
        case Op::kGatedSilu:
          add_element_wise(node);
          break;
      }
    }
    const Op last = graph_.nodes[fusions_.producer[graph_.logits]].op;
    if (last != Op::kLinear) {
      items_.push_back({.type = Item::Type::kRow,
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

  Item& add_row_node(int32_t node, RowOp::Kind kind) {
    const Node& n = graph_.nodes[node];
    Item item{.type = Item::Type::kRow, .row_op = kind, .rows = graph_.values[n.out].rows, .node = node};
    for (ValueId v : n.in) {
      item.level = std::max(item.level, level_for_row_op(v, item.rows));
      item.reads.push_back(value_buffer_[v]);
    }
    item.writes = {value_buffer_[n.out]};
    finish_value(node, item.level, true);
    items_.push_back(std::move(item));
    return items_.back();
  }

  void add_rope(int32_t node) {
    const Node& n = graph_.nodes[node];
    if (fusions_.readers[n.in[0]].size() == 1) value_buffer_[n.out] = value_buffer_[n.in[0]];
    add_row_node(node, RowOp::Kind::kRope).reads.push_back(rope_buffer(std::get<RopeAttr>(n.attr).rope));
  }

  void add_attend(int32_t node) {
    const Node& n = graph_.nodes[node];
    Item write{
        .type = Item::Type::kRow, .row_op = RowOp::Kind::kKvWrite, .rows = Rows::kTokens, .node = node};
    for (int i : {1, 2}) {
      write.level = std::max(write.level, level_for_row_op(n.in[i], Rows::kTokens));
      write.reads.push_back(value_buffer_[n.in[i]]);
    }
    Item attend{.type = Item::Type::kAttend, .rows = Rows::kTokens, .node = node};
    attend.level = std::max(write.level, level_[n.in[0]]) + 1;
    attend.reads = {value_buffer_[n.in[0]]};
    attend.writes = {value_buffer_[n.out]};
    finish_value(node, attend.level, false);
    items_.push_back(std::move(write));
    items_.push_back(std::move(attend));
  }

  void add_element_wise(int32_t node) {
    std::vector<int32_t> folded;
    for (ValueId v : graph_.nodes[node].in) {
      const int32_t producer = fusions_.producer[v];
      if (fusions_.into[producer] == node) folded.push_back(producer);
    }
    if (folded.empty()) {
      add_row_node(node, graph_.nodes[node].op == Op::kAdd ? RowOp::Kind::kAdd : RowOp::Kind::kGatedSilu);
    } else {
      add_linear(node, folded);
    }
  }

  // `node` produces the result; `linears` are the linear nodes under it, or itself.
  void add_linear(int32_t node, const std::vector<int32_t>& linears) {
    const Node& n = graph_.nodes[node];
    const ValueId input = graph_.nodes[linears[0]].in[0];
    Item item{.type = Item::Type::kLinear, .rows = graph_.values[n.out].rows, .node = node, .value = input};
    for (int32_t linear : linears) {
      if (is_float(*weights_.matrices[graph_.nodes[linear].weight].form)) {
        item.level = std::max(item.level, level_[input] + 1);
        item.reads.push_back(value_buffer_[input]);
      } else {
        item.level = std::max(item.level, quantize(input) + 1);
        item.reads.push_back(quantized_buffer(input));
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
      items_.push_back({.type = Item::Type::kRow,
                        .row_op = RowOp::Kind::kQuantize,
                        .rows = rows,
                        .value = v,
                        .level = quantized_level_[v],
                        .reads = {value_buffer_[v]},
                        .writes = {quantized_buffer(v)}});
    }
    return quantized_level_[v];
  }

  // ---- phases and memory

  void collect_phases() {
    // Items with the same key share a phase: row ops of a level, linear nodes of a level and input. Levels
    // ascend.
    std::map<std::tuple<int32_t, Item::Type, Rows, int32_t>, std::vector<Item*>> by_key;
    for (Item& item : items_) {
      const int32_t what = item.type == Item::Type::kRow      ? kNone
                           : item.type == Item::Type::kLinear ? item.value
                                                              : item.node;
      by_key[{item.level, item.type, item.rows, what}].push_back(&item);
    }
    for (auto& [key, items] : by_key) {
      for (Item* item : items)
        item->phase = int32_t(phase_items_.size());
      phase_items_.push_back(std::move(items));
    }
  }

  void place_buffers() {
    for (const Item& item : items_) {
      for (const auto* list : {&item.reads, &item.writes}) {
        for (int32_t id : *list) {
          PlannedBuffer& b = buffers_[id];
          b.first_phase = std::min(b.first_phase, item.phase);
          b.last_phase = std::max(b.last_phase, item.phase);
          if (item.type != Item::Type::kRow) b.row_ops_only = false;
        }
      }
    }
    PlannedBuffer& logits = buffers_[value_buffer_[graph_.logits]];
    logits.row_bytes = size_t(graph_.vocab) * sizeof(float);  // dense: the caller reads [L, vocab]
    logits.last_phase = int32_t(phase_items_.size());

    std::vector<size_t> worker_bytes(phase_items_.size(), 0);
    std::vector<BufferUse> uses;
    std::vector<int32_t> ids;
    for (size_t id = 0; id < buffers_.size(); id++) {
      PlannedBuffer& b = buffers_[id];
      if (b.last_phase < 0) continue;
      if (b.row_ops_only && b.first_phase == b.last_phase) {
        b.ref = {RowsRef::Place::kWorker, worker_bytes[b.first_phase], 0};
        worker_bytes[b.first_phase] += round_up(b.row_bytes, 64);
        continue;
      }
      const size_t rows = size_t(b.rows == Rows::kTokens ? limits_.max_tokens : limits_.max_logit_rows);
      uses.push_back({b.row_bytes * rows, b.first_phase, b.last_phase});
      ids.push_back(int32_t(id));
    }
    const MemoryPlan memory = plan_memory(uses);
    for (size_t i = 0; i < ids.size(); i++) {
      buffers_[ids[i]].ref = {RowsRef::Place::kScratch, memory.offsets[i], buffers_[ids[i]].row_bytes};
    }
    scratch_bytes_ = memory.bytes;
    worker_row_bytes_ =
        worker_bytes.empty() ? 0 : *std::max_element(worker_bytes.begin(), worker_bytes.end());
  }

  // ---- emission

  std::vector<Phase> emit_phases() {
    std::vector<Phase> phases;
    for (const std::vector<Item*>& items : phase_items_) {
      const Item& first = *items.front();
      switch (first.type) {
        case Item::Type::kRow: {
          RowPhase phase{.rows = first.rows, .ops = {}};
          for (const Item* item : items)
            phase.ops.push_back(emit_row_op(*item));
          phases.emplace_back(std::move(phase));
          break;
        }
        case Item::Type::kLinear: {
          LinearPhase phase{.rows = first.rows,
                            .x = value_ref(first.value),
                            .q = buffers_[quantized_buffer(first.value)].ref,
                            .parts = {}};
          for (const Item* item : items)
            emit_linear(*item, phase);
          phases.emplace_back(std::move(phase));
          break;
        }
        case Item::Type::kAttend: {
          const Node& n = graph_.nodes[first.node];
          phases.emplace_back(
              AttendPhase{value_ref(n.in[0]), value_ref(n.out), std::get<AttendAttr>(n.attr)});
          break;
        }
      }
    }
    return phases;
  }

  RowOp emit_row_op(const Item& item) const {
    RowOp op{.kind = item.row_op};
    if (item.row_op == RowOp::Kind::kRopeTable) {
      op.rope = item.node;
      op.width = graph_.ropes[item.node].dim;
      op.out = buffers_[rope_buffer(item.node)].ref;
      return op;
    }
    if (item.node == kNone) {  // kQuantize, kCheckFinite
      op.width = graph_.values[item.value].width;
      op.in = value_ref(item.value);
      if (item.row_op == RowOp::Kind::kQuantize) op.out = buffers_[quantized_buffer(item.value)].ref;
      return op;
    }
    const Node& n = graph_.nodes[item.node];
    if (item.row_op == RowOp::Kind::kKvWrite) {
      const auto& attr = std::get<AttendAttr>(n.attr);
      op.group = attr.group;
      op.layer = attr.layer;
      op.width = attr.kv_heads * attr.head_dim;
      op.in = value_ref(n.in[1]);
      op.in2 = value_ref(n.in[2]);
      return op;
    }
    op.width = graph_.values[n.out].width;
    op.out = value_ref(n.out);
    if (!n.in.empty()) op.in = value_ref(n.in[0]);
    if (n.in.size() > 1) op.in2 = value_ref(n.in[1]);
    if (n.op == Op::kEmbed) op.table = &weights_.matrices[n.weight];
    if (const auto* norm = std::get_if<NormAttr>(&n.attr)) {
      op.weight = weights_.vectors[n.weight].data();
      op.eps = norm->eps;
      op.head_dim = norm->head_dim == 0 ? op.width : norm->head_dim;
      op.heads = op.width / op.head_dim;
    }
    if (const auto* rope = std::get_if<RopeAttr>(&n.attr)) {
      op.in2 = buffers_[rope_buffer(rope->rope)].ref;
      op.rope = rope->rope;
      op.heads = rope->heads;
      op.head_dim = rope->head_dim;
    }
    return op;
  }

  const float* bias_of(const Node& n) const {
    return n.bias == kNone ? nullptr : weights_.vectors[n.bias].data();
  }

  void emit_linear(const Item& item, LinearPhase& phase) const {
    const Node& n = graph_.nodes[item.node];
    LinearPart part;
    const Node* linear = &n;
    if (n.op == Op::kGatedSilu) {
      linear = &graph_.nodes[fusions_.producer[n.in[0]]];
      const Node& up = graph_.nodes[fusions_.producer[n.in[1]]];
      part.up = &weights_.matrices[up.weight];
      part.up_bias = bias_of(up);
    } else if (n.op == Op::kAdd) {
      const ValueId y = n.in[0] == fusions_.residual[item.node] ? n.in[1] : n.in[0];
      linear = &graph_.nodes[fusions_.producer[y]];
      part.add_to_out = true;
    }
    part.matrix = &weights_.matrices[linear->weight];
    part.bias = bias_of(*linear);
    part.out = value_ref(n.out);
    part.check_finite = n.out == graph_.logits;
    part.first_tile = phase.tiles;
    phase.tiles += tile_count(part.matrix->rows);
    phase.parts.push_back(part);
  }

  const Graph& graph_;
  const WeightSet& weights_;
  const ExecutableLimits& limits_;
  const Fusions fusions_;
  std::vector<Item> items_;
  std::vector<std::vector<Item*>> phase_items_;
  std::vector<PlannedBuffer> buffers_;    // fp32 [values], quantized [values], rope tables [ropes]
  std::vector<int32_t> value_buffer_;     // [values]: its fp32 buffer; in-place results share one
  std::vector<int32_t> level_;            // [values]
  std::vector<bool> by_row_op_;           // [values]
  std::vector<int32_t> quantized_level_;  // [values] or kNone
  std::vector<int32_t> node_level_;       // [nodes]
  size_t scratch_bytes_ = 0, worker_row_bytes_ = 0;
};

}  // namespace

Result<StepPlan> make_step_plan(const Graph& graph, const WeightSet& weights,
                                const ExecutableLimits& limits) {
  RETURN_IF_ERROR(graph.validate());
  RETURN_IF_ERROR(check_weights(graph, weights));
  return Planner(graph, weights, limits).run();
}

}  // namespace invar
