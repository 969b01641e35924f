// Row phases: every op of the phase for one row, then the next row; rows in parallel where there are enough
// of them.

#include <algorithm>
#include <cstring>

#include "backends/cpu/step_state.h"

namespace invar {
namespace {

double ns_per_row(const RowPhase& phase, const CostModel& cost) {
  double floats = 0;
  for (const RowOp& op : phase.ops) {
    const int32_t width = op.kind == RowOp::Kind::kKvWrite ? 2 * op.width : op.width;
    floats += op.kind == RowOp::Kind::kRopeTable ? 20.0 * width : width;  // sin and cos in double
  }
  return 20.0 * double(phase.ops.size()) + floats / cost.floats_per_ns;
}

void run_row_op(const RowOp& op, Rows rows, int64_t row, int worker, StepState& step) {
  const KernelTable& k = step.kernels;
  const int32_t token = step.token_of(rows, row);
  uint8_t* fault = step.workers[worker].faults + token;
  const auto in = [&] { return step.floats(op.in, row, worker); };
  const auto in2 = [&] { return step.floats(op.in2, row, worker); };
  const auto out = [&] { return step.floats(op.out, row, worker); };
  switch (op.kind) {
    case RowOp::Kind::kRopeTable: {
      const Rope& rope = step.graph.ropes[op.rope];
      const bool is_long =
          !rope.long_inv_freq.empty() && step.inputs.sequences[step.sequence_of[row]].long_rope;
      k.rope_table((is_long ? rope.long_inv_freq : rope.inv_freq).data(), rope.dim, step.positions[row],
                   rope.attention_factor, rope.scaled, out(), out() + rope.dim / 2);
      return;
    }
    case RowOp::Kind::kEmbed:
      k.unpack_row(*op.table, step.inputs.tokens[row] < op.table->rows ? step.inputs.tokens[row] : 0, out());
      return;
    case RowOp::Kind::kRmsNorm:
      for (int32_t h = 0; h < op.heads; h++) {
        const int64_t first = int64_t{h} * op.head_dim;
        k.rms_norm(in() + first, op.weight, op.eps, op.head_dim, out() + first, fault);
      }
      return;
    case RowOp::Kind::kLayerNorm:
      k.layer_norm(in(), op.weight, op.bias, op.eps, op.width, out(), fault);
      return;
    case RowOp::Kind::kRope: {
      const int32_t dim = step.graph.ropes[op.rope].dim;
      if (out() != in()) std::memcpy(out(), in(), size_t(op.width) * sizeof(float));
      const auto rotate = step.graph.ropes[op.rope].adjacent ? k.rope_adjacent : k.rope;
      rotate(out(), op.heads, op.head_dim, dim, in2(), in2() + dim / 2);
      return;
    }
    case RowOp::Kind::kKvWrite: {
      const KvView& kv = step.inputs.sequences[step.sequence_of[row]].kv[op.group];
      k.kv_write[kv.layout->codec->index](kv, op.layer, step.positions[row], in(), in2(), fault);
      return;
    }
    case RowOp::Kind::kAdd:
      k.add(in(), in2(), op.width, out());
      return;
    case RowOp::Kind::kGatedSilu:
      k.gated_silu(in(), in2(), op.width, out());
      return;
    case RowOp::Kind::kGatedGelu:
      k.gated_gelu(in(), in2(), op.width, out());
      return;
    case RowOp::Kind::kGelu:
      k.unary[size_t(Unary::kGeluTanh)](in(), op.width, out());
      return;
    case RowOp::Kind::kTanh:
      k.unary[size_t(Unary::kTanh)](in(), op.width, out());
      return;
    case RowOp::Kind::kScale:
      k.scale(in(), op.factor, op.width, out());
      return;
    case RowOp::Kind::kMultiply:
      k.multiply(in(), op.weight, op.width, out());
      return;
    case RowOp::Kind::kAddScaled:
      k.add_scaled(in(), in2(), step.floats(op.in3, row, worker)[op.column], op.width, out());
      return;
    case RowOp::Kind::kMatchRms:
      k.match_rms(in(), in2(), op.factor, op.width, out(), fault);
      return;
    case RowOp::Kind::kSparsify:
      k.sparsify(in(), op.factor, op.width, out(), fault);
      return;
    case RowOp::Kind::kColumns:
      std::memcpy(out(), in() + op.column, size_t(op.width) * sizeof(float));
      return;
    case RowOp::Kind::kSoftcap:
      k.softcap(in(), op.factor, op.width, out());
      return;
    case RowOp::Kind::kSelect:
      std::memcpy(out(), step.floats(op.in, token, worker), size_t(op.width) * sizeof(float));
      return;
    case RowOp::Kind::kQuantize:
      k.quantize_row(step.gathered(in(), op.columns, op.width, worker), op.width,
                     step.at(op.out, row, worker), fault);
      return;
    case RowOp::Kind::kCheckFinite:
      if (!k.rows.all_finite(in(), op.width)) *fault = 1;
      return;
  }
}

}  // namespace

void run_row_phase(const RowPhase& phase, StepState& step) {
  const int64_t rows = step.count(phase.rows);
  if (rows == 0) return;
  const int64_t rows_per_task = units_per_task(rows, ns_per_row(phase, step.cost), step.pool.threads());
  step.pool.run((rows + rows_per_task - 1) / rows_per_task, [&](int64_t task, int worker) {
    const int64_t end = std::min(rows, (task + 1) * rows_per_task);
    for (int64_t row = task * rows_per_task; row < end; row++) {
      for (const RowOp& op : phase.ops)
        run_row_op(op, phase.rows, row, worker, step);
    }
  });
}

}  // namespace invar
