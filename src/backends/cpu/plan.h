#pragma once
// StepPlan: a graph turned into the few phases that the CPU executor runs one after another. Made once by
// make_step_plan(), immutable, owned by the executable. All offsets are bytes in the executable's scratch
// block.
//
// Row ops go through a row one after another (row by row, in parallel over rows); linear nodes with the same
// input are one phase over the concatenation of their tiles; an attention node is one phase, and so is a
// mixture of experts, with its scratch for the case that all rows choose other experts. A phase reads only
// what earlier phases wrote, row ops also what an earlier op of the same phase wrote for the same row.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/routing.h"
#include "base/status.h"
#include "graph/graph.h"
#include "graph/weight_set.h"

namespace invar {

// Where the rows of an array lie.
struct RowsRef {
  enum class Place : uint8_t { kNone, kScratch, kWorker };
  Place place = Place::kNone;
  size_t offset = 0;  // in the scratch block, or in the row memory of each worker
  size_t stride = 0;  // bytes from row to row; kWorker: 0, one row that lives within a phase
};

struct RowOp {
  enum class Kind : uint8_t {
    kRopeTable,  // out: cos [dim/2], sin [dim/2] of the row's position
    kEmbed,
    kRmsNorm,  // per vector of head_dim
    kLayerNorm,
    kRope,     // in2: the table; out may be in
    kKvWrite,  // in: k, in2: v
    kAdd,
    kGatedSilu,
    kGatedGelu,
    kGelu,
    kTanh,
    kScale,
    kMultiply,
    kSoftcap,
    kAddScaled,  // in3: the factors
    kMatchRms,
    kSparsify,
    kColumns,
    kSelect,    // in has token rows, out logit rows
    kQuantize,  // out: the quantized row
    kCheckFinite,
  };
  Kind kind;
  int32_t width = 0;  // floats of in (of out where there is no in)
  RowsRef in, in2, in3, out;
  const PackedMatrix* table = nullptr;  // kEmbed
  const float* weight = nullptr;        // norms (nullptr: none), kMultiply
  const float* bias = nullptr;          // kLayerNorm
  float eps = 0;
  float factor = 0;    // kScale, kSoftcap, kMatchRms, kSparsify
  int32_t column = 0;  // kAddScaled, kColumns
  int32_t heads = 0, head_dim = 0;
  int32_t rope = kNone;
  int32_t group = 0, layer = 0;
  const int32_t* columns = nullptr;  // kQuantize: [width], the elements in the order they are taken
};

struct RowPhase {
  Rows rows = Rows::kTokens;
  std::vector<RowOp> ops;
};

// One linear node, or the two under a gated unit: tile t of gate and up are computed together.
struct LinearPart {
  const PackedMatrix* matrix = nullptr;  // the gate where there is an up
  const PackedMatrix* up = nullptr;
  bool gelu = false;            // the unit's function, else silu
  const float* bias = nullptr;  // [channels] or nullptr
  const float* up_bias = nullptr;
  RowsRef q, up_q;  // quantized rows, where the matrix is quantized
  RowsRef out;
  bool add_to_out = false;    // residual
  bool check_finite = false;  // logits: nobody behind would notice NaN and infinity
  int64_t first_tile = 0;     // in the concatenation of the phase
};

struct LinearPhase {
  Rows rows = Rows::kTokens;
  RowsRef x;  // fp32 rows, where a matrix is in a float form
  std::vector<LinearPart> parts;
  int64_t tiles = 0;
};

struct AttendPhase {
  RowsRef q, out;
  AttendAttr attr{};
  const float* sinks = nullptr;  // [heads] or nullptr
};

struct ExpertRefs {
  const PackedMatrix *gate = nullptr, *up = nullptr, *down = nullptr;
  const float *gate_bias = nullptr, *up_bias = nullptr, *down_bias = nullptr;  // or nullptr
};

// Arrays of an experts phase in its scratch, for the most rows of a step: offsets and strides in bytes. A
// stride of 0: the form is not needed. y lies over x and q, which nobody reads any more.
struct ExpertsMemory {
  size_t ids = 0, weights = 0, place = 0, pair_at = 0;
  size_t x = 0, x_stride = 0, q = 0, q_stride = 0;
  size_t act = 0, act_stride = 0, act_q = 0, act_q_stride = 0;
  size_t y = 0, y_stride = 0;
};

struct ExpertsPhase {
  Rows rows = Rows::kTokens;
  RowsRef x;  // fp32 rows, where a gate or up matrix is in a float form
  RowsRef q;  // quantized rows, where one is quantized
  RowsRef scores, shared, shared_gate, out;
  Router router;
  std::vector<ExpertRefs> experts;
  int32_t hidden = 0, ffn = 0;
  RowsRef scratch;
  ExpertsMemory memory;
};

using Phase = std::variant<RowPhase, LinearPhase, AttendPhase, ExpertsPhase>;

struct StepPlan {
  std::vector<Phase> phases;
  std::vector<std::string> names;  // [phases]: the nodes that run in each, without their layer
  size_t scratch_bytes = 0;
  size_t worker_row_bytes = 0;  // row memory of each worker
  size_t gathered_floats = 0;   // the most columns of a gathered matrix
  RowsRef logits;
};

// Points into graph and weights. Errors name the weight that is missing or of a wrong shape.
Result<StepPlan> make_step_plan(const Graph& graph, const WeightSet& weights, const ExecutableLimits& limits);

}  // namespace invar
