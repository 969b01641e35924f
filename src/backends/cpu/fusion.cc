#include "backends/cpu/fusion.h"

#include <utility>

namespace invar {
namespace {

class Finder {
 public:
  explicit Finder(const Graph& graph) : graph_(graph), overwritten_(graph.values.size(), false) {
    f_.into.assign(graph.nodes.size(), kNone);
    f_.residual.assign(graph.nodes.size(), kNone);
    f_.producer.assign(graph.values.size(), kNone);
    f_.readers.resize(graph.values.size());
  }

  Fusions run() {
    const int32_t nodes = int32_t(graph_.nodes.size());
    for (int32_t i = 0; i < nodes; i++) {
      f_.producer[graph_.nodes[i].out] = i;
      for (ValueId v : graph_.nodes[i].in)
        f_.readers[v].push_back(i);
    }
    for (int32_t i = 0; i < nodes; i++) {
      const Op op = graph_.nodes[i].op;
      if (op == Op::kGatedSilu || op == Op::kGatedGelu) fuse_gated(i);
    }
    for (int32_t i = 0; i < nodes; i++) {
      if (graph_.nodes[i].op == Op::kAdd && !fuse_add(i, 0)) fuse_add(i, 1);
    }
    return std::move(f_);
  }

 private:
  bool is_private_linear(ValueId v) const {
    return graph_.nodes[f_.producer[v]].op == Op::kLinear && f_.readers[v].size() == 1 && v != graph_.logits;
  }

  void fuse_gated(int32_t node) {
    const ValueId gate = graph_.nodes[node].in[0], up = graph_.nodes[node].in[1];
    if (gate == up || !is_private_linear(gate) || !is_private_linear(up)) return;
    const int32_t a = f_.producer[gate], b = f_.producer[up];
    if (graph_.nodes[a].in[0] == graph_.nodes[b].in[0]) f_.into[a] = f_.into[b] = node;
  }

  // x = in[side] is overwritten, the other input is the linear node's.
  bool fuse_add(int32_t node, int side) {
    const ValueId x = graph_.nodes[node].in[side], y = graph_.nodes[node].in[1 - side];
    if (x == y || x == graph_.logits || !is_private_linear(y)) return false;
    // The linear node moves down to the add: what it reads must still be there.
    if (overwritten_[graph_.nodes[f_.producer[y]].in[0]]) return false;
    for (int32_t reader : f_.readers[x]) {
      if (reader != node && f_.place(reader) >= node) return false;
      if (reader == f_.producer[y]) return false;
    }
    f_.into[f_.producer[y]] = node;
    f_.residual[node] = x;
    overwritten_[x] = true;
    return true;
  }

  const Graph& graph_;
  std::vector<bool> overwritten_;  // [values]: by an add seen so far
  Fusions f_;
};

}  // namespace

Fusions find_fusions(const Graph& graph) {
  return Finder(graph).run();
}

}  // namespace invar
