#include "graph/graph_text.h"

#include <fmt/format.h>

#include <iterator>

namespace invar {
namespace {

void append_weight(std::string& text, const Graph& graph, const char* what, WeightId id) {
  if (id < 0 || size_t(id) >= graph.weights.size()) return;
  const Weight& w = graph.weights[id];
  fmt::format_to(std::back_inserter(text), " {}={}[{}", what, w.name, w.rows);
  if (w.kind == Weight::Kind::kMatrix) fmt::format_to(std::back_inserter(text), ", {}", w.cols);
  text += ']';
}

const char* routing_name(Routing routing) {
  switch (routing) {
    case Routing::kSoftmax:
      return "softmax";
    case Routing::kSoftmaxOfChosen:
      return "softmax-of-chosen";
    case Routing::kSigmoid:
      return "sigmoid";
  }
  return "?";
}

std::string attr_text(const Attr& attr) {
  if (const auto* norm = std::get_if<NormAttr>(&attr)) {
    return norm->head_dim == 0 ? fmt::format(" eps={}", norm->eps)
                               : fmt::format(" eps={} head_dim={}", norm->eps, norm->head_dim);
  }
  if (const auto* rope = std::get_if<RopeAttr>(&attr)) {
    return fmt::format(" rope={} heads={}x{}", rope->rope, rope->heads, rope->head_dim);
  }
  if (const auto* attend = std::get_if<AttendAttr>(&attr)) {
    return fmt::format(" group={} layer={} heads={}/{}x{} scale={}{}", attend->group, attend->layer,
                       attend->heads, attend->kv_heads, attend->head_dim, attend->scale,
                       attend->softcap > 0 ? fmt::format(" softcap={}", attend->softcap) : "");
  }
  if (const auto* factor = std::get_if<FactorAttr>(&attr)) return fmt::format(" factor={}", factor->factor);
  if (const auto* column = std::get_if<ColumnAttr>(&attr)) return fmt::format(" column={}", column->column);
  if (const auto* experts = std::get_if<ExpertsAttr>(&attr)) {
    return fmt::format(" chosen={} routing={}{}{}", experts->chosen, routing_name(experts->routing),
                       experts->renormalize ? " renormalized" : "",
                       experts->scale == 1 ? "" : fmt::format(" scale={}", experts->scale));
  }
  return {};
}

}  // namespace

std::string graph_text(const Graph& graph) {
  std::string text;
  const auto out = std::back_inserter(text);
  for (size_t g = 0; g < graph.kv_groups.size(); g++) {
    const KvGroup& group = graph.kv_groups[g];
    fmt::format_to(out, "kv group {}: {} layers, {} KV heads of {}, {}\n", g, group.layers, group.kv_heads,
                   group.head_dim,
                   group.window == 0 ? "all positions" : fmt::format("window {}", group.window));
  }
  for (size_t r = 0; r < graph.ropes.size(); r++) {
    fmt::format_to(
        out, "rope {}: dim {}{}{}{}\n", r, graph.ropes[r].dim,
        graph.ropes[r].adjacent ? ", adjacent pairs" : "",
        graph.ropes[r].long_inv_freq.empty()
            ? ""
            : fmt::format(", other frequencies for prompts beyond {}", graph.ropes[r].short_context),
        graph.ropes[r].scaled ? fmt::format(", attention factor {}", graph.ropes[r].attention_factor) : "");
  }
  for (const Node& node : graph.nodes) {
    const Value& value = graph.values.at(node.out);
    fmt::format_to(out, "%{} [{}, {}] = {}(", node.out, value.rows == Rows::kTokens ? 'T' : 'L', value.width,
                   op_name(node.op));
    for (size_t i = 0; i < node.in.size(); i++)
      fmt::format_to(out, "{}%{}", i == 0 ? "" : ", ", node.in[i]);
    fmt::format_to(out, ")  {}{}", node.site, attr_text(node.attr));
    append_weight(text, graph, "weight", node.weight);
    append_weight(text, graph, "bias", node.bias);
    if (const auto* attr = std::get_if<ExpertsAttr>(&node.attr)) {
      const auto& set = graph.expert_sets.at(size_t(attr->set));
      fmt::format_to(out, " experts={}", set.size());
      append_weight(text, graph, "first.gate", set.front().gate);
      append_weight(text, graph, "first.down", set.front().down);
    }
    text += node.out == graph.logits ? "  <- logits\n" : "\n";
  }
  return text;
}

}  // namespace invar
