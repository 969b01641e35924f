#include "graph/logit_rows.h"

#include <utility>

namespace invar {
namespace {

// Ops whose every output row depends on the same row of the inputs only, without its position.
bool is_row_wise(Op op) {
  switch (op) {
    case Op::kRmsNorm:
    case Op::kLayerNorm:
    case Op::kLinear:
    case Op::kAdd:
    case Op::kGatedSilu:
    case Op::kGatedGelu:
    case Op::kGelu:
    case Op::kTanh:
    case Op::kScale:
    case Op::kMultiply:
    case Op::kSoftcap:
    case Op::kAddScaled:
    case Op::kMatchRms:
    case Op::kSparsify:
    case Op::kColumns:
    case Op::kExperts:
      return true;
    case Op::kEmbed:
    case Op::kRope:
    case Op::kAttend:
    case Op::kSelectRows:
      return false;
  }
  return false;
}

// [values]: whether a value with token rows is read for its logit rows only.
std::vector<bool> find_logit_only(const Graph& graph) {
  std::vector<int> readers(graph.values.size(), 0), logit_readers(graph.values.size(), 0);
  std::vector<bool> logit_only(graph.values.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    if (graph.values[node.out].rows == Rows::kTokens && is_row_wise(node.op)) {
      logit_only[node.out] = readers[node.out] > 0 && logit_readers[node.out] == readers[node.out];
    }
    const bool wants_logit_rows = node.op == Op::kSelectRows || logit_only[node.out];
    for (ValueId v : node.in) {
      readers[v]++;
      logit_readers[v] += wants_logit_rows;
    }
  }
  return logit_only;
}

}  // namespace

Graph select_rows_early(const Graph& graph) {
  const std::vector<bool> logit_only = find_logit_only(graph);
  Graph result = graph;
  result.values.clear();
  result.nodes.clear();
  std::vector<ValueId> renamed(graph.values.size(), kNone), selected(graph.values.size(), kNone);

  const auto append = [&](Node node, Value value) {
    node.out = ValueId(result.values.size());
    result.values.push_back(value);
    result.nodes.push_back(std::move(node));
    return result.nodes.back().out;
  };
  const auto select = [&](ValueId v, const std::string& site) {
    if (logit_only[v] || graph.values[v].rows == Rows::kLogits) return renamed[v];
    if (selected[v] == kNone) {
      selected[v] = append({.op = Op::kSelectRows, .site = site, .in = {renamed[v]}, .attr = {}},
                           {graph.values[v].width, Rows::kLogits});
    }
    return selected[v];
  };

  for (const Node& node : graph.nodes) {
    if (node.op == Op::kSelectRows) {
      renamed[node.out] = select(node.in[0], node.site);
      continue;
    }
    Node copy = node;
    Value value = graph.values[node.out];
    if (logit_only[node.out]) value.rows = Rows::kLogits;
    for (size_t i = 0; i < copy.in.size(); i++) {
      copy.in[i] = logit_only[node.out] ? select(node.in[i], node.site + ".rows" + std::to_string(i))
                                        : renamed[node.in[i]];
    }
    renamed[node.out] = append(std::move(copy), value);
  }
  result.logits = renamed[graph.logits];
  return result;
}

}  // namespace invar
