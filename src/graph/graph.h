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

enum class Op : uint8_t {
  kEmbed,    // tokens[T] -> [T, hidden]; weight: [vocab, hidden]
  kRmsNorm,  // per row, or per head of head_dim where NormAttr says so; weight: vector
  kLinear,   // x -> x W^T (+ bias); weight: [out, in]
  kRope,     // rotates every head of x by its row's position
  kAttend,   // in: q, k, v; appends k, v to the KV group, reads what was written; out: [T, heads * head_dim]
  kAdd,      // residual: in[0] + in[1]
  kGatedSilu,   // silu(in[0]) * in[1]
  kSelectRows,  // [T, n] -> [L, n]: the rows that want logits
};
const char* op_name(Op op);

enum class Rows : uint8_t { kTokens, kLogits };  // T or L

struct Value {
  int32_t width;  // f32 [rows, width]
  Rows rows;
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
};

struct NormAttr {
  float eps;
  int32_t head_dim;
};  // head_dim 0: the whole row is one vector
struct RopeAttr {
  int32_t rope;
  int32_t heads;
  int32_t head_dim;
};
struct AttendAttr {
  int32_t group;  // index into Graph::kv_groups
  int32_t layer;  // layer inside the group
  int32_t heads, kv_heads, head_dim;
  float scale;  // multiplies q.k
};
using Attr = std::variant<std::monostate, NormAttr, RopeAttr, AttendAttr>;

struct Node {
  Op op;
  std::string site;  // stable and unique: "layers.3.attn.q"; adapters attach by it
  std::vector<ValueId> in;
  ValueId out = kNone;
  WeightId weight = kNone;
  WeightId bias = kNone;
  Attr attr;
};

// Frequencies are computed once at load by the rules of docs/numerics.md, so that backends only multiply.
struct Rope {
  int32_t dim;                  // rotated leading part of a head; pairs (i, i + dim/2)
  std::vector<float> inv_freq;  // [dim/2]
  float attention_factor = 1;   // multiplies the rounded cos and sin ...
  bool scaled = false;          // ... if set
};

// Layers whose KV pages have the same placement and geometry. A page spans all layers of its group.
struct KvGroup {
  int32_t layers;
  int32_t kv_heads;
  int32_t head_dim;
  int32_t window = 0;  // positions kept; 0 = all
};

struct Graph {
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<Weight> weights;
  std::vector<Rope> ropes;
  std::vector<KvGroup> kv_groups;
  ValueId logits = kNone;
  int32_t vocab = 0;

  // Every input is produced earlier, widths and weight shapes agree, sites are unique. For tests and after
  // recording.
  Status validate() const;
};

}  // namespace invar
