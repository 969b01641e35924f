#include "backends/cpu/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "backends/cpu/check_weights.h"
#include "backends/cpu/plan_items.h"
#include "graph/memory_plan.h"
#include "kernels/kernel_table.h"

namespace invar {
namespace {

struct PlannedBuffer {
  size_t row_bytes = 0;
  Rows rows = Rows::kTokens;
  int32_t first_phase = std::numeric_limits<int32_t>::max();
  int32_t last_phase = -1;
  bool row_ops_only = true;
  RowsRef ref;
};

// The second half of planning: items into phases, buffers into memory.
class Planner {
 public:
  Planner(const Graph& graph, const WeightSet& weights, const ExecutableLimits& limits)
      : graph_(graph), weights_(weights), limits_(limits), planned_(make_plan_items(graph, weights)) {
    const size_t values = graph.values.size();
    buffers_.resize(size_t(gathered_buffer(graph, int32_t(planned_.gathered.size()))));
    for (size_t v = 0; v < values; v++) {
      const Value& value = graph.values[v];
      buffers_[v].rows = buffers_[values + v].rows = value.rows;
      buffers_[v].row_bytes = round_up(size_t(value.width) * sizeof(float), 64);
      buffers_[values + v].row_bytes = quantized_row_bytes(value.width);
    }
    for (size_t r = 0; r < graph.ropes.size(); r++) {
      buffers_[2 * values + r].row_bytes = round_up(size_t(graph.ropes[r].dim) * sizeof(float), 64);
    }
    for (size_t i = 0; i < planned_.gathered.size(); i++) {
      const Value& value = graph.values[planned_.gathered[i].value];
      PlannedBuffer& b = buffers_[gathered_buffer(graph, int32_t(i))];
      b.rows = value.rows;
      b.row_bytes = quantized_row_bytes(value.width);
    }
    for (const Node& node : graph.nodes) {
      if (node.op != Op::kExperts) continue;
      PlannedBuffer& b = buffers_[experts_buffer(graph, std::get<ExpertsAttr>(node.attr).set)];
      b.rows = graph.values[node.out].rows;
      experts_memory(node, &b.row_bytes);
    }
  }

  StepPlan run() {
    collect_phases();
    place_buffers();
    StepPlan plan;
    plan.phases = emit_phases();
    plan.names = phase_names();
    plan.scratch_bytes = scratch_bytes_;
    plan.worker_row_bytes = worker_row_bytes_;
    for (const PackedMatrix& m : weights_.matrices)
      if (m.form != nullptr && m.form->gathered)
        plan.gathered_floats = std::max(plan.gathered_floats, size_t(m.cols));
    plan.logits = value_ref(graph_.logits);
    return plan;
  }

 private:
  const RowsRef& value_ref(ValueId v) const { return buffers_[planned_.value_buffer[v]].ref; }

  void collect_phases() {
    // Items with the same key share a phase: row ops of a level, linear nodes of a level and input. Levels
    // ascend.
    std::map<std::tuple<int32_t, PlanItem::Type, Rows, int32_t>, std::vector<PlanItem*>> by_key;
    for (PlanItem& item : planned_.items) {
      const int32_t what = item.type == PlanItem::Type::kRow      ? kNone
                           : item.type == PlanItem::Type::kLinear ? item.value
                                                                  : item.node;
      by_key[{item.level, item.type, item.rows, what}].push_back(&item);
    }
    for (auto& [key, items] : by_key) {
      for (PlanItem* item : items)
        item->phase = int32_t(phase_items_.size());
      phase_items_.push_back(std::move(items));
    }
  }

  void place_buffers() {
    for (const PlanItem& item : planned_.items) {
      for (const auto* list : {&item.reads, &item.writes}) {
        for (int32_t id : *list) {
          PlannedBuffer& b = buffers_[id];
          b.first_phase = std::min(b.first_phase, item.phase);
          b.last_phase = std::max(b.last_phase, item.phase);
          if (item.type != PlanItem::Type::kRow) b.row_ops_only = false;
        }
      }
    }
    PlannedBuffer& logits = buffers_[planned_.value_buffer[graph_.logits]];
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
    for (const std::vector<PlanItem*>& items : phase_items_) {
      const PlanItem& first = *items.front();
      switch (first.type) {
        case PlanItem::Type::kRow: {
          RowPhase phase{.rows = first.rows, .ops = {}};
          for (const PlanItem* item : items)
            phase.ops.push_back(emit_row_op(*item));
          phases.emplace_back(std::move(phase));
          break;
        }
        case PlanItem::Type::kLinear: {
          LinearPhase phase{.rows = first.rows, .x = value_ref(first.value), .parts = {}};
          for (const PlanItem* item : items)
            emit_linear(*item, phase);
          phases.emplace_back(std::move(phase));
          break;
        }
        case PlanItem::Type::kAttend: {
          const Node& n = graph_.nodes[first.node];
          phases.emplace_back(AttendPhase{value_ref(n.in[0]), value_ref(n.out), std::get<AttendAttr>(n.attr),
                                          vector_of(n.weight)});
          break;
        }
        case PlanItem::Type::kExperts:
          phases.emplace_back(emit_experts(graph_.nodes[first.node]));
          break;
      }
    }
    return phases;
  }

  // "attn.q+attn.k+attn.v".
  std::vector<std::string> phase_names() const {
    std::vector<std::string> names;
    for (const std::vector<PlanItem*>& items : phase_items_) {
      std::vector<std::string> parts;
      for (const PlanItem* item : items) {
        std::string part = item_name(*item);
        if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(std::move(part));
      }
      names.push_back(fmt::format("{}", fmt::join(parts, "+")));
    }
    return names;
  }

  std::string item_name(const PlanItem& item) const {
    if (item.type == PlanItem::Type::kRow) {
      if (item.row_op == RowOp::Kind::kRopeTable) return "rope table";
      if (item.row_op == RowOp::Kind::kQuantize) return "quantize";
      if (item.row_op == RowOp::Kind::kCheckFinite) return "check";
      if (item.row_op == RowOp::Kind::kKvWrite) return "kv write";
      return site_in_layer(graph_.nodes[item.node]);
    }
    // Fused nodes go by the linear nodes in them.
    std::string name;
    for (size_t i = 0; i < graph_.nodes.size(); i++) {
      if (graph_.nodes[i].op == Op::kLinear && planned_.fusions.into[i] == item.node)
        name += (name.empty() ? "" : "+") + site_in_layer(graph_.nodes[i]);
    }
    return name.empty() ? site_in_layer(graph_.nodes[item.node]) : name;
  }

  static std::string site_in_layer(const Node& n) {
    constexpr std::string_view kLayers = "layers.";
    if (!n.site.starts_with(kLayers)) return n.site;
    return n.site.substr(n.site.find('.', kLayers.size()) + 1);
  }

  RowOp emit_row_op(const PlanItem& item) const {
    RowOp op{.kind = item.row_op};
    if (item.row_op == RowOp::Kind::kRopeTable) {
      op.rope = item.node;
      op.width = graph_.ropes[item.node].dim;
      op.out = buffers_[rope_buffer(graph_, item.node)].ref;
      return op;
    }
    if (item.node == kNone) {  // kQuantize, kCheckFinite
      op.width = graph_.values[item.value].width;
      op.in = value_ref(item.value);
      if (item.row_op == RowOp::Kind::kQuantize) op.out = buffers_[item.writes[0]].ref;
      op.columns = item.columns;
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
    if (n.in.size() > 2) op.in3 = value_ref(n.in[2]);
    if (n.op == Op::kEmbed) op.table = &weights_.matrices[n.weight];
    if (const auto* norm = std::get_if<NormAttr>(&n.attr)) {
      op.weight = n.weight == kNone ? nullptr : weights_.vectors[n.weight].data();
      op.bias = bias_of(n);
      op.eps = norm->eps;
      op.head_dim = norm->head_dim == 0 ? op.width : norm->head_dim;
      op.heads = op.width / op.head_dim;
    }
    if (n.op == Op::kMultiply) {
      op.weight = weights_.vectors[n.weight].data();
      op.factor = *op.weight;
    }
    if (const auto* factor = std::get_if<FactorAttr>(&n.attr)) op.factor = factor->factor;
    if (const auto* column = std::get_if<ColumnAttr>(&n.attr)) op.column = column->column;
    if (const auto* rope = std::get_if<RopeAttr>(&n.attr)) {
      op.in2 = buffers_[rope_buffer(graph_, rope->rope)].ref;
      op.rope = rope->rope;
      op.heads = rope->heads;
      op.head_dim = rope->head_dim;
    }
    return op;
  }

  const float* vector_of(WeightId id) const { return id == kNone ? nullptr : weights_.vectors[id].data(); }
  const float* bias_of(const Node& n) const { return vector_of(n.bias); }

  // Every array is a whole number of lines per row, so that offsets for all rows are aligned. *row_bytes: of
  // all of them for one row.
  ExpertsMemory experts_memory(const Node& n, size_t* row_bytes) const {
    const auto& attr = std::get<ExpertsAttr>(n.attr);
    const auto& set = graph_.expert_sets[attr.set];
    const ExpertForms forms = expert_forms(set, weights_);
    const Value& out = graph_.values[n.out];
    const int64_t ffn = graph_.weights[set.front().gate].rows;
    const size_t most_rows = size_t(out.rows == Rows::kTokens ? limits_.max_tokens : limits_.max_logit_rows);
    const size_t chosen = size_t(attr.chosen);
    size_t used = 0;
    const auto take = [&](size_t bytes_per_row) {
      return std::exchange(used, used + round_up(bytes_per_row, 64)) * most_rows;
    };
    const auto float_bytes = [](int64_t width) { return round_up(size_t(width) * sizeof(float), 64); };
    ExpertsMemory m;
    for (size_t* array : {&m.ids, &m.weights, &m.place, &m.pair_at})
      *array = take(chosen * 4);
    m.act_stride = float_bytes(ffn);
    m.act = take(chosen * m.act_stride);
    if (forms.quantized_down) {
      m.act_q_stride = quantized_row_bytes(ffn);
      m.act_q = take(chosen * m.act_q_stride);
    }
    m.y_stride = float_bytes(out.width);
    if (forms.float_in) m.x_stride = m.y_stride;
    if (forms.quantized_in) m.q_stride = quantized_row_bytes(out.width);
    m.y = take(chosen * std::max(m.y_stride, m.x_stride + m.q_stride));
    m.x = m.y;
    m.q = m.x + chosen * m.x_stride * most_rows;
    *row_bytes = used;
    return m;
  }

  ExpertsPhase emit_experts(const Node& n) const {
    const auto& attr = std::get<ExpertsAttr>(n.attr);
    const auto& set = graph_.expert_sets[attr.set];
    ExpertsPhase phase{.rows = graph_.values[n.out].rows,
                       .x = value_ref(n.in[0]),
                       .q = buffers_[quantized_buffer(graph_, n.in[0])].ref,
                       .scores = value_ref(n.in[1]),
                       .out = value_ref(n.out),
                       .router = {attr, int32_t(set.size()), bias_of(n), vector_of(n.weight)},
                       .experts = {},
                       .hidden = graph_.values[n.out].width,
                       .ffn = int32_t(graph_.weights[set.front().gate].rows),
                       .scratch = buffers_[experts_buffer(graph_, attr.set)].ref};
    if (n.in.size() > 2) phase.shared = value_ref(n.in[2]);
    if (n.in.size() > 3) phase.shared_gate = value_ref(n.in[3]);
    for (const ExpertWeights& e : set) {
      phase.experts.push_back({&weights_.matrices[e.gate], &weights_.matrices[e.up],
                               &weights_.matrices[e.down], vector_of(e.gate_bias), vector_of(e.up_bias),
                               vector_of(e.down_bias)});
    }
    size_t row_bytes = 0;
    phase.memory = experts_memory(n, &row_bytes);
    return phase;
  }

  // Where a matrix finds v quantized, if it reads that.
  RowsRef quantized_ref(ValueId v, const PackedMatrix& matrix) const {
    if (!matrix.form->gathered) return buffers_[quantized_buffer(graph_, v)].ref;
    return buffers_[gathered_buffer(graph_, find_gathered(planned_.gathered, v, matrix))].ref;
  }

  void emit_linear(const PlanItem& item, LinearPhase& phase) const {
    const Node& n = graph_.nodes[item.node];
    LinearPart part;
    const Node* linear = &n;
    if (n.op == Op::kGatedSilu || n.op == Op::kGatedGelu) {
      part.gelu = n.op == Op::kGatedGelu;
      linear = &graph_.nodes[planned_.fusions.producer[n.in[0]]];
      const Node& up = graph_.nodes[planned_.fusions.producer[n.in[1]]];
      part.up = &weights_.matrices[up.weight];
      part.up_bias = bias_of(up);
      part.up_q = quantized_ref(item.value, *part.up);
    } else if (n.op == Op::kAdd) {
      const ValueId y = n.in[0] == planned_.fusions.residual[item.node] ? n.in[1] : n.in[0];
      linear = &graph_.nodes[planned_.fusions.producer[y]];
      part.add_to_out = true;
    }
    part.matrix = &weights_.matrices[linear->weight];
    part.q = quantized_ref(item.value, *part.matrix);
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
  PlanItems planned_;
  std::vector<std::vector<PlanItem*>> phase_items_;
  std::vector<PlannedBuffer> buffers_;
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
