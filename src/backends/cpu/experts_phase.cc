// Experts phases: rows choose their experts, then every (row, chosen expert) pair gets a place, the places of
// an expert lying side by side, so that its matrices meet all its rows at once and stream from memory once a
// step. Each row sums what its experts made in its own order. Rows depend on nobody: where a pair lies, and
// who lies beside it, changes no bit.

#include <algorithm>
#include <cstring>

#include "backends/cpu/step_state.h"

namespace invar {
namespace {

// The phase's arrays in this step.
struct Arrays {
  Arrays(const ExpertsPhase& phase, const StepState& step)
      : rows(step.count(phase.rows)),
        count(rows * phase.router.attr.chosen),
        base(step.scratch + phase.scratch.offset),
        ids(array<int32_t>(phase.memory.ids)),
        weights(array<float>(phase.memory.weights)),
        place(array<int32_t>(phase.memory.place)),
        pair_at(array<int32_t>(phase.memory.pair_at)) {}
  template <class T>
  T* array(size_t offset) const {
    return reinterpret_cast<T*>(base + offset);
  }

  int64_t rows;
  int64_t count;  // of pairs and places
  std::byte* base;
  int32_t* ids;      // [rows, chosen]
  float* weights;    // [rows, chosen]
  int32_t* place;    // [rows, chosen]
  int32_t* pair_at;  // [places]: row * chosen + slot
};

void choose_experts(const ExpertsPhase& phase, const Arrays& a, StepState& step) {
  const Router& router = phase.router;
  const int32_t chosen = router.attr.chosen;
  const double ns = 100 + double(router.experts) * (chosen + 4) / step.cost.floats_per_ns / 4;
  const int64_t per_task = units_per_task(a.rows, ns, step.pool.threads());
  step.pool.run((a.rows + per_task - 1) / per_task, [&](int64_t task, int worker) {
    for (int64_t row = task * per_task; row < std::min(a.rows, (task + 1) * per_task); row++) {
      route(router, step.kernels, step.floats(phase.scores, row, worker), step.workers[worker].gate,
            a.ids + row * chosen, a.weights + row * chosen,
            step.workers[worker].faults + step.token_of(phase.rows, row));
    }
  });
}

// Places ascend by expert, then by row. step.expert_first[e] becomes the first place of expert e.
void group_by_expert(const ExpertsPhase& phase, const Arrays& a, StepState& step) {
  std::vector<int32_t>& first = step.expert_first;
  const size_t experts = phase.experts.size();
  std::fill_n(first.begin(), experts + 1, 0);
  for (int64_t p = 0; p < a.count; p++)
    first[size_t(a.ids[p]) + 1]++;
  for (size_t e = 1; e <= experts; e++)
    first[e] += first[e - 1];
  for (int64_t p = 0; p < a.count; p++) {
    const int32_t place = first[size_t(a.ids[p])]++;
    a.place[p] = place;
    a.pair_at[place] = int32_t(p);
  }
  for (size_t e = experts; e > 0; e--)  // each has moved on to where the next begins
    first[e] = first[e - 1];
  first[0] = 0;
}

// Copies the rows to their places.
void gather(const ExpertsPhase& phase, const Arrays& a, StepState& step) {
  const int32_t chosen = phase.router.attr.chosen;
  const double ns = double(phase.memory.x_stride + phase.memory.q_stride) / step.cost.bytes_per_ns + 20;
  const int64_t per_task = units_per_task(a.count, ns, step.pool.threads());
  step.pool.run((a.count + per_task - 1) / per_task, [&](int64_t task, int worker) {
    for (int64_t p = task * per_task; p < std::min(a.count, (task + 1) * per_task); p++) {
      const int64_t row = a.pair_at[p] / chosen;
      if (phase.memory.x_stride > 0) {
        std::memcpy(a.array<std::byte>(phase.memory.x) + size_t(p) * phase.memory.x_stride,
                    step.at(phase.x, row, worker), size_t(phase.hidden) * sizeof(float));
      }
      if (phase.memory.q_stride > 0) {
        std::byte* q = a.array<std::byte>(phase.memory.q) + size_t(p) * phase.memory.q_stride;
        const ExpertRefs& expert = phase.experts[size_t(a.ids[a.pair_at[p]])];
        const int32_t* columns = expert.gate->columns();
        if (columns == nullptr) columns = expert.up->columns();  // equal where both have them
        if (columns == nullptr) {
          std::memcpy(q, step.at(phase.q, row, worker), quantized_row_bytes(phase.hidden));
        } else {
          step.kernels.quantize_row(
              step.gathered(step.floats(phase.x, row, worker), columns, phase.hidden, worker), phase.hidden,
              q, step.workers[worker].faults + step.token_of(phase.rows, row));
        }
      }
    }
  });
}

// Blocks of each expert's rows; `matrices` give the time of a tile.
template <class TileNs>
int64_t cut_jobs(const ExpertsPhase& phase, int64_t tiles, TileNs tile_ns, StepState& step) {
  constexpr int64_t kRowMultiple = 16, kMinRows = kMinExpertRows, kMostRows = kGateFloats / kTileRows;
  step.expert_jobs.clear();
  int64_t total_ns = 0;
  for (size_t e = 0; e < phase.experts.size(); e++) {
    const int64_t first = step.expert_first[e], rows = step.expert_first[e + 1] - first;
    if (rows == 0) continue;
    const int64_t blocks = int64_t(tile_ns(phase.experts[e], rows) / kMaxTaskNs) + 1;
    const int64_t even = ((rows + blocks - 1) / blocks + kRowMultiple - 1) / kRowMultiple * kRowMultiple;
    const int64_t most = std::min(std::max(even, kMinRows), kMostRows);
    for (int64_t row = 0; row < rows; row += most) {
      ExpertJob job{.expert = int32_t(e),
                    .first_place = int32_t(first + row),
                    .rows = int32_t(std::min(most, rows - row)),
                    .tile_ns = 0,
                    .first_ns = total_ns};
      job.tile_ns = std::max(int64_t(tile_ns(phase.experts[e], job.rows)), int64_t{1});
      total_ns += job.tile_ns * tiles;
      step.expert_jobs.push_back(job);
    }
  }
  return total_ns;
}

// run(job, tile_begin, tile_end, worker) over all tiles of all jobs; threads claim spans of time.
template <class Run>
void run_jobs(int64_t tiles, int64_t total_ns, StepState& step, Run run) {
  const int64_t count = tiles * int64_t(step.expert_jobs.size());
  const int64_t claim_ns = std::max(units_per_task(total_ns, 1, step.pool.threads()), total_ns / count);
  step.pool.run((total_ns + claim_ns - 1) / claim_ns, [&](int64_t claim, int worker) {
    const int64_t begin = claim * claim_ns, end = begin + claim_ns;
    const auto tiles_before = [&](const ExpertJob& job, int64_t ns) {
      return std::clamp((ns - job.first_ns + job.tile_ns - 1) / job.tile_ns, int64_t{0}, tiles);
    };
    const auto after = std::upper_bound(step.expert_jobs.begin(), step.expert_jobs.end(), begin,
                                        [](int64_t ns, const ExpertJob& job) { return ns < job.first_ns; });
    for (auto job = after - 1; job != step.expert_jobs.end() && job->first_ns < end; ++job) {
      const int64_t first = tiles_before(*job, begin), last = tiles_before(*job, end);
      if (first < last) run(*job, first, last, worker);
    }
  });
}

LinearInput input_rows(const Arrays& a, const ExpertJob& job, size_t x, size_t x_stride, size_t q,
                       size_t q_stride) {
  LinearInput in{.rows = job.rows, .x = nullptr, .x_stride = 0, .q = nullptr, .q_stride = 0};
  if (x_stride > 0) {
    in.x = a.array<float>(x + size_t(job.first_place) * x_stride);
    in.x_stride = int64_t(x_stride / sizeof(float));
  }
  if (q_stride > 0) {
    in.q = a.array<std::byte>(q + size_t(job.first_place) * q_stride);
    in.q_stride = q_stride;
  }
  return in;
}

void gate(const ExpertsAttr& attr, const float* gate, const float* up, int64_t n, float* out,
          const KernelTable& kernels) {
  switch (attr.unit) {
    case GatedUnit::kSilu:
      return kernels.gated_silu(gate, up, n, out);
    case GatedUnit::kGelu:
      return kernels.gated_gelu(gate, up, n, out);
    case GatedUnit::kClampedSilu:
      return kernels.gated_clamped(gate, up, attr.alpha, attr.limit, n, out);
  }
}

// unit(gate(x), up(x)) of all places.
void run_gates(const ExpertsPhase& phase, const Arrays& a, StepState& step) {
  const ExpertsMemory& m = phase.memory;
  const int64_t tiles = tile_count(phase.ffn);
  const auto tile_ns = [&](const ExpertRefs& e, int64_t rows) {
    return ns_per_tile(*e.gate, rows, step.cost) + ns_per_tile(*e.up, rows, step.cost);
  };
  const int64_t total_ns = cut_jobs(phase, tiles, tile_ns, step);
  run_jobs(
      tiles, total_ns, step, [&](const ExpertJob& job, int64_t tile_begin, int64_t tile_end, int worker) {
        const ExpertRefs& expert = phase.experts[size_t(job.expert)];
        const WorkerMemory& memory = step.workers[worker];
        const LinearInput in = input_rows(a, job, m.x, m.x_stride, m.q, m.q_stride);
        const int64_t tiles_at_once = kGateFloats / (int64_t{job.rows} * kTileRows);
        for (int64_t begin = tile_begin; begin < tile_end; begin += tiles_at_once) {
          const int64_t end = std::min(begin + tiles_at_once, tile_end), first = begin * kTileRows;
          const int64_t channels = std::min(end * kTileRows, int64_t{phase.ffn}) - first;
          // The kernel counts channels from the matrix's first.
          LinearOutput out{
              .y = memory.gate - first, .y_stride = channels, .bias = expert.gate_bias, .add_to_y = false};
          step.kernels.linear(*expert.gate, begin, end, in, out);
          out.y = memory.up - first;
          out.bias = expert.up_bias;
          step.kernels.linear(*expert.up, begin, end, in, out);
          gate(phase.router.attr, memory.gate, memory.up, job.rows * channels, memory.gate, step.kernels);
          for (int64_t r = 0; r < job.rows; r++) {
            std::memcpy(a.array<float>(m.act + size_t(job.first_place + r) * m.act_stride) + first,
                        memory.gate + r * channels, size_t(channels) * sizeof(float));
          }
        }
      });
}

void quantize_gates(const ExpertsPhase& phase, const Arrays& a, StepState& step) {
  const ExpertsMemory& m = phase.memory;
  if (m.act_q_stride == 0) return;
  const int64_t per_task =
      units_per_task(a.count, 20 + phase.ffn / step.cost.floats_per_ns, step.pool.threads());
  step.pool.run((a.count + per_task - 1) / per_task, [&](int64_t task, int worker) {
    for (int64_t p = task * per_task; p < std::min(a.count, (task + 1) * per_task); p++) {
      const int64_t row = a.pair_at[p] / phase.router.attr.chosen;
      const int32_t* columns = phase.experts[size_t(a.ids[a.pair_at[p]])].down->columns();
      const float* act = a.array<float>(m.act + size_t(p) * m.act_stride);
      step.kernels.quantize_row(step.gathered(act, columns, phase.ffn, worker), phase.ffn,
                                a.array<std::byte>(m.act_q + size_t(p) * m.act_q_stride),
                                step.workers[worker].faults + step.token_of(phase.rows, row));
    }
  });
}

void run_downs(const ExpertsPhase& phase, const Arrays& a, StepState& step) {
  const ExpertsMemory& m = phase.memory;
  const int64_t tiles = tile_count(phase.hidden);
  const auto tile_ns = [&](const ExpertRefs& e, int64_t rows) {
    return ns_per_tile(*e.down, rows, step.cost);
  };
  const int64_t total_ns = cut_jobs(phase, tiles, tile_ns, step);
  run_jobs(tiles, total_ns, step, [&](const ExpertJob& job, int64_t begin, int64_t end, int) {
    const ExpertRefs& expert = phase.experts[size_t(job.expert)];
    const LinearOutput out{.y = a.array<float>(m.y + size_t(job.first_place) * m.y_stride),
                           .y_stride = int64_t(m.y_stride / sizeof(float)),
                           .bias = expert.down_bias,
                           .add_to_y = false};
    step.kernels.linear(*expert.down, begin, end,
                        input_rows(a, job, m.act, m.act_stride, m.act_q, m.act_q_stride), out);
  });
}

// The sum of each row: its experts in the order of routing, then what all rows share.
void combine(const ExpertsPhase& phase, const Arrays& a, StepState& step) {
  const ExpertsMemory& m = phase.memory;
  const KernelTable& k = step.kernels;
  const int32_t chosen = phase.router.attr.chosen;
  const double ns = 20 + double(phase.hidden) * (chosen + 1) / step.cost.floats_per_ns / 2;
  const int64_t per_task = units_per_task(a.rows, ns, step.pool.threads());
  step.pool.run((a.rows + per_task - 1) / per_task, [&](int64_t task, int worker) {
    for (int64_t row = task * per_task; row < std::min(a.rows, (task + 1) * per_task); row++) {
      float* out = step.floats(phase.out, row, worker);
      std::memset(out, 0, size_t(phase.hidden) * sizeof(float));
      for (int64_t p = row * chosen; p < (row + 1) * chosen; p++)
        k.add_scaled(out, a.array<float>(m.y + size_t(a.place[p]) * m.y_stride), a.weights[p], phase.hidden,
                     out);
      if (phase.shared.place == RowsRef::Place::kNone) continue;
      float factor = 1;
      if (phase.shared_gate.place != RowsRef::Place::kNone)
        k.unary[size_t(Unary::kSigmoid)](step.floats(phase.shared_gate, row, worker), 1, &factor);
      k.add_scaled(out, step.floats(phase.shared, row, worker), factor, phase.hidden, out);
    }
  });
}

}  // namespace

void run_experts_phase(const ExpertsPhase& phase, StepState& step) {
  const Arrays arrays(phase, step);
  if (arrays.rows == 0) return;
  choose_experts(phase, arrays, step);
  group_by_expert(phase, arrays, step);
  gather(phase, arrays, step);
  run_gates(phase, arrays, step);
  quantize_gates(phase, arrays, step);
  run_downs(phase, arrays, step);
  combine(phase, arrays, step);
}

}  // namespace invar
