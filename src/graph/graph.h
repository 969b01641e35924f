#pragma once
// Graph: a model as a flat list of plain nodes in execution order, recorded once by a family (models/) and
// never changed after load. It names no cache, batch, device or thread: the number of tokens T and of logit
// rows L are symbolic, attention names a KV group by number. Backends read it and decide how to run it.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"

namespace invar {

using ValueId = int32_t;
using WeightId = int32_t;
inline constexpr int32_t kNone = -1;
inline constexpr size_t kMaxExperts = 1024;  // of one layer

enum class Op : uint8_t {
  // tokens[T] -> [T, width]; weight: [vocab, width]. A table with fewer rows gives row 0 for tokens beyond
  // it.
  kEmbed,
  kRmsNorm,    // per row, or per head of head_dim where NormAttr says so; weight: vector, or none
  kLayerNorm,  // per row; weight, bias: vectors
  kLinear,     // x -> x W^T (+ bias); weight: [out, in]
  kRope,       // rotates every head of x by its row's position
  // in: q, k, v; appends k, v to the KV group, reads what was written; out: [T, heads * head_dim]. in: q
  // alone: reads what an earlier node wrote for that layer of the group. weight: a score per head that takes
  // part in the softmax and has no value (a sink), or kNone.
  kAttend,
  kAdd,        // residual: in[0] + in[1]
  kGatedSilu,  // silu(in[0]) * in[1]
  kGatedGelu,  // gelu(in[0]) * in[1], the tanh form
  kGelu,       // the tanh form
  kTanh,
  kScale,       // in[0] * factor
  kMultiply,    // in[0] * weight: a vector of its width, or of one element
  kSoftcap,     // factor * tanh(in[0] / factor)
  kAddScaled,   // in[0] + c * in[1], c: column `column` of in[2]
  kMatchRms,    // in[0] with the root mean square of in[1]; its own is taken as at least the root of factor
  kSparsify,    // max(0, in[0] - its mean - factor * its standard deviation)
  kColumns,     // [rows, n] -> [rows, width]: the columns from `column` on
  kSelectRows,  // [T, n] -> [L, n]: the rows that want logits
  // in: x [rows, hidden], router scores before any function [rows, experts], then, if there is one, what a
  // shared expert makes of x and, if that has a gate, the gate before its sigmoid [rows, 1]. Out: what the
  // chosen experts make of x, weighted and summed (docs/numerics.md, section 6). weight: a factor of each
  // expert's weight; bias: added to the scores for the choice alone; both vectors [experts] or kNone.
  kExperts,
};
const char* op_name(Op op);

enum class Rows : uint8_t { kTokens, kLogits };  // T or L

struct Value {
  int32_t width;  // f32 [rows, width]
  Rows rows;
  bool operator==(const Value&) const = default;
};

// A weight by its canonical name (Hugging Face's, without the trailing ".weight" removed:
// "model.norm.weight").
struct Weight {
  enum class Kind : uint8_t { kMatrix, kVector };
  std::string name;
  Kind kind;
  int64_t rows;  // matrix: output channels; vector: elements
  int64_t cols;  // matrix: K; vector: 1
  // Heads whose rows rotate in pairs (q and k projections and their biases), else 0. Files of converters that
  // interleave the halves of such heads are brought back to the half layout when packed.
  int32_t rotary_heads = 0;
  // Where the file keeps it in a larger tensor: of `fused`, which has fused_rows, every row_step-th row from
  // first_row on.
  std::string fused = {};
  int64_t first_row = 0, fused_rows = 0;
  bool add_one = false;  // vector: the file stores its elements less one
  // `fused` is a stack of `experts` such tensors, and this is from number `expert`.
  int32_t row_step = 1;
  int32_t experts = 0, expert = 0;
  bool transposed = false;  // matrix: the file has it as [in, out]

  const std::string& tensor() const { return fused.empty() ? name : fused; }
  bool operator==(const Weight&) const = default;
};

struct NormAttr {
  float eps;
  int32_t head_dim;
  bool operator==(const NormAttr&) const = default;
};  // head_dim 0: the whole row is one vector
struct RopeAttr {
  int32_t rope;
  int32_t heads;
  int32_t head_dim;
  bool operator==(const RopeAttr&) const = default;
};
struct AttendAttr {
  int32_t group;  // index into Graph::kv_groups
  int32_t layer;  // layer inside the group
  int32_t heads, kv_heads, head_dim;
  float scale;        // multiplies q.k
  float softcap = 0;  // then s = softcap * tanh(s / softcap), where it is not 0
  bool operator==(const AttendAttr&) const = default;
};
struct FactorAttr {
  float factor;
  bool operator==(const FactorAttr&) const = default;
};
struct ColumnAttr {
  int32_t column;
  bool operator==(const ColumnAttr&) const = default;
};

// How router scores become the weights of the chosen experts.
enum class Routing : uint8_t {
  kSoftmax,          // of all scores; the highest are chosen
  kSoftmaxOfChosen,  // of the highest scores alone
  kSigmoid,          // of each score
};
enum class GatedUnit : uint8_t {
  kSilu,         // silu(gate) * up
  kGelu,         // gelu(gate) * up, the tanh form
  kClampedSilu,  // g = min(gate, limit), u = up within +-limit: g * sigmoid(alpha * g) * (u + 1)
};
struct ExpertsAttr {
  int32_t set;  // index into Graph::expert_sets
  int32_t chosen;
  Routing routing = Routing::kSoftmax;
  bool renormalize = false;  // the weights are divided by their sum ...
  float sum_floor = 0;       // ... plus this
  float scale = 1;           // then multiplied by it
  GatedUnit unit = GatedUnit::kSilu;
  float alpha = 1, limit = 0;  // kClampedSilu
  bool operator==(const ExpertsAttr&) const = default;
};
using Attr =
    std::variant<std::monostate, NormAttr, RopeAttr, AttendAttr, FactorAttr, ColumnAttr, ExpertsAttr>;

// One expert of a layer: down(unit(gate(x), up(x))). All experts of a set have the same shape, and the same
// of its biases.
struct ExpertWeights {
  WeightId gate = kNone, up = kNone, down = kNone;
  WeightId gate_bias = kNone, up_bias = kNone, down_bias = kNone;
  bool operator==(const ExpertWeights&) const = default;
};

struct Node {
  Op op;
  std::string site;  // stable and unique: "layers.3.attn.q"; adapters attach by it
  std::vector<ValueId> in;
  ValueId out = kNone;
  WeightId weight = kNone;
  WeightId bias = kNone;
  Attr attr;
  bool operator==(const Node&) const = default;
};

// Frequencies are computed once at load by the rules of docs/numerics.md, so that backends only multiply.
struct Rope {
  int32_t dim;                  // rotated leading part of a head
  std::vector<float> inv_freq;  // [dim/2]
  float attention_factor = 1;   // multiplies the rounded cos and sin ...
  bool scaled = false;          // ... if set
  bool adjacent = false;        // pairs (2i, 2i + 1) instead of (i, i + dim/2)
  // Of sequences whose prompt has more than short_context tokens; empty: those above, whatever the length.
  std::vector<float> long_inv_freq = {};
  int32_t short_context = 0;
  bool operator==(const Rope&) const = default;
};

// Layers whose KV pages have the same placement and geometry. A page spans all layers of its group.
struct KvGroup {
  int32_t layers;
  int32_t kv_heads;
  int32_t head_dim;
  int32_t window = 0;  // positions kept; 0 = all
  bool operator==(const KvGroup&) const = default;
};

struct Graph {
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<Weight> weights;
  std::vector<Rope> ropes;
  std::vector<KvGroup> kv_groups;
  std::vector<std::vector<ExpertWeights>> expert_sets;
  ValueId logits = kNone;
  int32_t vocab = 0;

  // Whether a sequence with such a prompt rotates by long_inv_freq, for as long as it lives.
  bool rotates_long(int64_t prompt_tokens) const;

  // Every input is produced earlier, widths and weight shapes agree, sites are unique. For tests and after
  // recording.
  Status validate() const;
  bool operator==(const Graph&) const = default;
};

}  // namespace invar
