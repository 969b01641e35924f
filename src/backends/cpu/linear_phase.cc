// Linear phases: tasks are (block of rows) x (range of tiles), blocks of rows outermost, so that a block's
// activations stay in a core's cache while the weights stream by.

#include <algorithm>
#include <cstring>

#include "backends/cpu/step_state.h"

namespace invar {
namespace {

struct Cut {
  int64_t rows_per_task;
  int64_t row_blocks;
  int64_t tiles_per_task;
  int64_t tile_blocks;
};

// Mean over the phase.
double ns_per_tile(const LinearPhase& phase, int64_t rows, const CostModel& cost) {
  double ns = 0;
  for (const LinearPart& part : phase.parts) {
    double one = ns_per_tile(*part.matrix, rows, cost);
    if (part.up != nullptr) one += ns_per_tile(*part.up, rows, cost);
    ns += one * double(tile_count(part.matrix->rows));
  }
  return ns / double(phase.tiles);
}

Cut cut_phase(const LinearPhase& phase, int64_t rows, const StepState& step) {
  constexpr int64_t kRowMultiple = 16, kMinRows = 32;
  Cut cut{};
  const int64_t blocks = int64_t(ns_per_tile(phase, rows, step.cost) / kMaxTaskNs) + 1;
  const int64_t even = (rows + blocks - 1) / blocks;
  const int64_t most = kGateFloats / kTileRows;  // one tile of a gated unit must fit the worker's memory
  cut.rows_per_task =
      std::min(std::max((even + kRowMultiple - 1) / kRowMultiple * kRowMultiple, kMinRows), most);
  cut.rows_per_task = std::min(cut.rows_per_task, rows);
  cut.row_blocks = (rows + cut.rows_per_task - 1) / cut.rows_per_task;
  const double tile_ns = ns_per_tile(phase, cut.rows_per_task, step.cost);
  const int64_t wanted = units_per_task(phase.tiles * cut.row_blocks, tile_ns, step.pool.threads());
  cut.tiles_per_task = std::min(wanted, phase.tiles);
  cut.tile_blocks = (phase.tiles + cut.tiles_per_task - 1) / cut.tiles_per_task;
  return cut;
}

struct Block {
  int64_t first_row, rows;
  int64_t tile_begin, tile_end;  // inside the part
  int worker;
};

LinearInput input_rows(const LinearPhase& phase, const RowsRef& q, const Block& b, const StepState& step) {
  LinearInput in{.rows = b.rows, .x = nullptr, .x_stride = 0, .q = nullptr, .q_stride = 0};
  if (phase.x.place == RowsRef::Place::kScratch) {
    in.x = step.floats(phase.x, b.first_row, b.worker);
    in.x_stride = int64_t(phase.x.stride / sizeof(float));
  }
  if (q.place == RowsRef::Place::kScratch) {
    in.q = step.at(q, b.first_row, b.worker);
    in.q_stride = q.stride;
  }
  return in;
}

void run_plain(const LinearPhase& phase, const LinearPart& part, const Block& b, StepState& step) {
  const LinearOutput out{.y = step.floats(part.out, b.first_row, b.worker),
                         .y_stride = int64_t(part.out.stride / sizeof(float)),
                         .bias = part.bias,
                         .add_to_y = part.add_to_out};
  step.kernels.linear(*part.matrix, b.tile_begin, b.tile_end, input_rows(phase, part.q, b, step), out);
  if (!part.check_finite) return;
  const int64_t first = b.tile_begin * kTileRows;
  const int64_t channels = std::min(b.tile_end * kTileRows, part.matrix->rows) - first;
  for (int64_t r = 0; r < b.rows; r++) {
    if (!step.kernels.rows.all_finite(out.y + r * out.y_stride + first, channels)) {
      step.workers[b.worker].faults[step.token_of(phase.rows, b.first_row + r)] = 1;
    }
  }
}

// Gate and up of a few tiles into the worker's memory, dense, so that the activation is one call.
void run_gated(const LinearPhase& phase, const LinearPart& part, const Block& b, StepState& step) {
  const WorkerMemory& memory = step.workers[b.worker];
  const LinearInput in = input_rows(phase, part.q, b, step), up_in = input_rows(phase, part.up_q, b, step);
  const int64_t tiles_at_once = kGateFloats / (b.rows * kTileRows);
  for (int64_t begin = b.tile_begin; begin < b.tile_end; begin += tiles_at_once) {
    const int64_t end = std::min(begin + tiles_at_once, b.tile_end);
    const int64_t first = begin * kTileRows;
    const int64_t channels = std::min(end * kTileRows, part.matrix->rows) - first;
    // The kernel counts channels from the matrix's first.
    LinearOutput out{.y = memory.gate - first, .y_stride = channels, .bias = part.bias, .add_to_y = false};
    step.kernels.linear(*part.matrix, begin, end, in, out);
    out.y = memory.up - first;
    out.bias = part.up_bias;
    step.kernels.linear(*part.up, begin, end, up_in, out);
    const auto gated = part.gelu ? step.kernels.gated_gelu : step.kernels.gated_silu;
    gated(memory.gate, memory.up, b.rows * channels, memory.gate);
    for (int64_t r = 0; r < b.rows; r++) {
      std::memcpy(step.floats(part.out, b.first_row + r, b.worker) + first, memory.gate + r * channels,
                  size_t(channels) * sizeof(float));
    }
  }
}

}  // namespace

void run_linear_phase(const LinearPhase& phase, StepState& step) {
  const int64_t rows = step.count(phase.rows);
  if (rows == 0) return;
  const Cut cut = cut_phase(phase, rows, step);
  step.pool.run(cut.row_blocks * cut.tile_blocks, [&](int64_t task, int worker) {
    const int64_t first_row = task / cut.tile_blocks * cut.rows_per_task;
    const int64_t begin = task % cut.tile_blocks * cut.tiles_per_task;
    const int64_t end = std::min(begin + cut.tiles_per_task, phase.tiles);
    for (const LinearPart& part : phase.parts) {
      const Block block{.first_row = first_row,
                        .rows = std::min(cut.rows_per_task, rows - first_row),
                        .tile_begin = std::max(begin - part.first_tile, int64_t{0}),
                        .tile_end = std::min(end - part.first_tile, tile_count(part.matrix->rows)),
                        .worker = worker};
      if (block.tile_begin >= block.tile_end) continue;
      part.up == nullptr ? run_plain(phase, part, block, step) : run_gated(phase, part, block, step);
    }
  });
}

}  // namespace invar
