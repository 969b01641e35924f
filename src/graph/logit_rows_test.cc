#include "graph/logit_rows.h"

#include <gtest/gtest.h>

#include <map>

#include "graph/builder.h"

namespace invar {
namespace {

// Two layers of residual + attention + linear; the second's linear only feeds logits.
Graph two_layers() {
  GraphBuilder b;
  const int group = b.kv_group({.layers = 0, .kv_heads = 1, .head_dim = 4});
  const WeightId table = b.matrix("embed", 10, 4);
  ValueId x = b.embed("embed", table);
  for (const std::string layer : {"0.", "1."}) {
    const ValueId n = b.rms_norm(layer + "norm", x, b.vector(layer + "norm", 4), 1e-5f);
    const ValueId a = b.attend(layer + "attend", n, n, n, {group, 0, 1, 1, 4, 1.0f});
    x = b.add(layer + "add", x, b.linear(layer + "o", a, b.matrix(layer + "o", 4, 4)));
  }
  x = b.rms_norm("norm", x, b.vector("norm", 4), 1e-5f);
  const ValueId logits = b.linear("head", b.select_logit_rows("select", x), table);
  return std::move(b).finish(logits, 10).value();
}

TEST(SelectRowsEarly, runs_what_only_feeds_logits_for_logit_rows) {
  const Graph graph = select_rows_early(two_layers());
  ASSERT_TRUE(graph.validate().ok()) << graph.validate().message();
  std::map<std::string, Rows> rows;
  int selects = 0;
  for (const Node& node : graph.nodes) {
    rows[node.site] = graph.values[node.out].rows;
    selects += node.op == Op::kSelectRows;
  }
  EXPECT_EQ(rows.at("0.o"), Rows::kTokens);
  EXPECT_EQ(rows.at("0.add"), Rows::kTokens);  // layer 1 attends to every row of it
  EXPECT_EQ(rows.at("1.norm"), Rows::kTokens);
  EXPECT_EQ(rows.at("1.attend"), Rows::kTokens);
  EXPECT_EQ(rows.at("1.o"), Rows::kLogits);
  EXPECT_EQ(rows.at("1.add"), Rows::kLogits);
  EXPECT_EQ(rows.at("norm"), Rows::kLogits);
  EXPECT_EQ(selects, 2);  // the attention output and the residual
  EXPECT_EQ(rows.count("select"), 0u);
}

TEST(SelectRowsEarly, leaves_a_graph_alone_that_selects_at_once) {
  GraphBuilder b;
  const WeightId table = b.matrix("embed", 10, 4);
  const ValueId x = b.select_logit_rows("select", b.embed("embed", table));
  const ValueId logits = b.linear("head", x, table);
  const Graph graph = select_rows_early(std::move(b).finish(logits, 10).value());
  ASSERT_TRUE(graph.validate().ok());
  ASSERT_EQ(graph.nodes.size(), 3u);
  EXPECT_EQ(graph.nodes[1].site, "select");
}

TEST(SelectRowsEarly, selects_a_shared_value_once) {
  GraphBuilder b;
  const WeightId table = b.matrix("embed", 10, 4);
  const ValueId x = b.embed("embed", table);
  const ValueId y = b.add("add", x, b.linear("linear", x, b.matrix("w", 4, 4)));
  const ValueId logits = b.linear("head", b.select_logit_rows("select", y), table);
  const Graph graph = select_rows_early(std::move(b).finish(logits, 10).value());
  ASSERT_TRUE(graph.validate().ok());
  EXPECT_EQ(graph.nodes.size(), 5u);
}

}  // namespace
}  // namespace invar
