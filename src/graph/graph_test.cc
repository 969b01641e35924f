#include "graph/graph.h"

#include <gmock/gmock.h>

#include <functional>

#include "graph/builder.h"
#include "graph/graph_text.h"

namespace invar {
namespace {

using ::testing::HasSubstr;

constexpr int kHidden = 8, kVocab = 20, kHeads = 4, kKvHeads = 2, kHeadDim = 2;

ValueId record(GraphBuilder& b) {
  const int rope = b.rope({.dim = 2, .inv_freq = {1.0f}});
  const int group = b.kv_group({.layers = 0, .kv_heads = kKvHeads, .head_dim = kHeadDim});
  const WeightId table = b.matrix("embed", kVocab, kHidden);
  const ValueId x = b.embed("embed", table);
  const ValueId n = b.rms_norm("0.norm", x, b.vector("0.norm", kHidden), 1e-5f);
  const ValueId q =
      b.rotate("0.q_rope", b.linear("0.q", n, b.matrix("0.q", 8, 8, kHeads)), rope, kHeads, kHeadDim);
  const ValueId k =
      b.rotate("0.k_rope", b.linear("0.k", n, b.matrix("0.k", 4, 8, kKvHeads)), rope, kKvHeads, kHeadDim);
  const ValueId v = b.linear("0.v", n, b.matrix("0.v", 4, 8), b.vector("0.v_bias", 4));
  const ValueId a = b.attend("0.attend", q, k, v, {group, 0, kHeads, kKvHeads, kHeadDim, 0.5f});
  const ValueId y = b.add("0.add", x, b.linear("0.o", a, b.matrix("0.o", 8, 8)));
  const ValueId g = b.linear("0.gate", y, b.matrix("0.gate", 6, 8));
  const ValueId u = b.linear("0.up", y, b.matrix("0.up", 6, 8));
  const ValueId z =
      b.add("0.add2", y, b.linear("0.down", b.gated_silu("0.act", g, u), b.matrix("0.down", 8, 6)));
  return b.linear("head", b.select_logit_rows("select", z), table);  // tied
}

Graph valid_graph() {
  GraphBuilder b;
  const ValueId logits = record(b);
  return std::move(b).finish(logits, kVocab).value();
}

Node& node_of(Graph& graph, const std::string& site) {
  for (Node& node : graph.nodes) {
    if (node.site == site) return node;
  }
  std::abort();
}

TEST(GraphBuilder, records_a_valid_graph_and_counts_layers) {
  const Graph graph = valid_graph();
  EXPECT_EQ(graph.kv_groups[0].layers, 1);
  EXPECT_EQ(graph.values[graph.logits].width, kVocab);
  EXPECT_EQ(graph.values[graph.logits].rows, Rows::kLogits);
}

TEST(GraphBuilder, gives_a_tied_table_one_weight) {
  GraphBuilder b;
  EXPECT_EQ(b.matrix("embed", 4, 8), b.matrix("embed", 4, 8));
  EXPECT_NE(b.matrix("head", 4, 8), b.matrix("embed", 4, 8));
}

TEST(GraphBuilder, numbers_layers_of_each_group) {
  Graph graph = valid_graph();
  GraphBuilder b;
  const int first = b.kv_group({.layers = 7, .kv_heads = 1, .head_dim = 2});
  const int second = b.kv_group({.layers = 7, .kv_heads = 1, .head_dim = 2});
  const ValueId x = b.embed("e", b.matrix("e", 4, 2));
  ValueId y = b.attend("a", x, x, x, {first, 0, 1, 1, 2, 1.0f});
  y = b.attend("b", y, y, y, {second, 0, 1, 1, 2, 1.0f});
  y = b.attend("c", y, y, y, {first, 0, 1, 1, 2, 1.0f});
  y = b.linear("h", b.select_logit_rows("s", y), b.matrix("e", 4, 2));
  const Result<Graph> result = std::move(b).finish(y, 4);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result.value().kv_groups[0].layers, 2);
  EXPECT_EQ(std::get<AttendAttr>(result.value().nodes[3].attr).layer, 1);
}

TEST(GraphBuilder, a_node_that_borrows_names_the_layer_of_its_donor) {
  GraphBuilder b;
  const int group = b.kv_group({.layers = 0, .kv_heads = 1, .head_dim = 2});
  const ValueId x = b.embed("e", b.matrix("e", 4, 2));
  const ValueId first = b.attend("a", x, x, x, {group, 0, 1, 1, 2, 1.0f});
  const ValueId second = b.attend("b", first, x, x, {group, 0, 1, 1, 2, 1.0f});
  const ValueId third = b.borrow("c", second, second);
  const ValueId y = b.linear("h", b.select_logit_rows("s", b.borrow("d", third, first)), b.matrix("e", 4, 2));
  const Result<Graph> result = std::move(b).finish(y, 4);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->kv_groups[0].layers, 2);
  EXPECT_EQ(std::get<AttendAttr>(result->nodes[3].attr).layer, 1);
  EXPECT_EQ(std::get<AttendAttr>(result->nodes[4].attr).layer, 0);
}

struct Damage {
  const char* what;
  std::function<void(Graph&)> apply;
  std::vector<std::string> message;
};

TEST(GraphValidate, names_the_node_and_the_fault) {
  const std::vector<Damage> damages = {
      {"unknown input", [](Graph& g) { node_of(g, "0.q").in[0] = 99; }, {"'0.q'", "(linear)", "99"}},
      {"negative input", [](Graph& g) { node_of(g, "0.q").in[0] = -1; }, {"'0.q'", "-1"}},
      {"later input", [](Graph& g) { node_of(g, "0.q").in[0] = g.logits; }, {"'0.q'", "earlier"}},
      {"two producers",
       [](Graph& g) { node_of(g, "0.k").out = node_of(g, "0.q").out; },
       {"'0.k'", "already"}},
      {"site twice", [](Graph& g) { node_of(g, "0.k").site = "0.q"; }, {"'0.q'", "twice"}},
      {"no site", [](Graph& g) { node_of(g, "0.k").site = ""; }, {"linear", "no site"}},
      {"weight shape",
       [](Graph& g) { g.weights[node_of(g, "0.o").weight].cols = 9; },
       {"'0.o'", "[8, 9]", "[8, 8]"}},
      {"weight kind",
       [](Graph& g) { node_of(g, "0.o").weight = node_of(g, "0.norm").weight; },
       {"'0.o'", "kind"}},
      {"no weight", [](Graph& g) { node_of(g, "0.o").weight = kNone; }, {"'0.o'", "weight"}},
      {"bias shape",
       [](Graph& g) { node_of(g, "0.q").bias = node_of(g, "0.v").bias; },
       {"'0.q'", "0.v_bias"}},
      {"fused rows",
       [](Graph& g) {
         Weight& w = g.weights[node_of(g, "0.o").weight];
         w.fused = "qkv", w.first_row = 1, w.fused_rows = w.rows;
       },
       {"is a part of"}},
      {"softcap of scores",
       [](Graph& g) {
         for (Node& node : g.nodes)
           if (auto* attend = std::get_if<AttendAttr>(&node.attr)) attend->softcap = -1;
       },
       {"(attend)", "softcap"}},
      {"factor", [](Graph& g) { node_of(g, "0.add").op = Op::kScale; }, {"'0.add'", "FactorAttr"}},
      {"cap",
       [](Graph& g) {
         node_of(g, "0.add").op = Op::kSoftcap;
         node_of(g, "0.add").attr = FactorAttr{0};
       },
       {"'0.add'", "cap"}},
      {"long frequencies",
       [](Graph& g) { g.ropes[0].long_inv_freq.assign(1 + g.ropes[0].inv_freq.size(), 1.0f); },
       {"rope 0", "long prompts"}},
      {"widths",
       [](Graph& g) { node_of(g, "0.add").in[1] = node_of(g, "0.k").out; },
       {"'0.add'", "widths 8 and 4"}},
      {"rows",
       [](Graph& g) { g.values[node_of(g, "0.add").out].rows = Rows::kLogits; },
       {"'0.add'", "logit rows"}},
      {"rope number",
       [](Graph& g) { node_of(g, "0.q_rope").attr = RopeAttr{3, 4, 2}; },
       {"'0.q_rope'", "rope"}},
      {"rope heads",
       [](Graph& g) { node_of(g, "0.q_rope").attr = RopeAttr{0, 3, 2}; },
       {"'0.q_rope'", "3 heads"}},
      {"rope attr", [](Graph& g) { node_of(g, "0.q_rope").attr = {}; }, {"'0.q_rope'", "RopeAttr"}},
      {"frequencies", [](Graph& g) { g.ropes[0].inv_freq = {}; }, {"rope 0"}},
      {"KV group",
       [](Graph& g) { std::get<AttendAttr>(node_of(g, "0.attend").attr).group = 1; },
       {"'0.attend'", "group 1"}},
      {"KV layer",
       [](Graph& g) { std::get<AttendAttr>(node_of(g, "0.attend").attr).layer = 1; },
       {"'0.attend'", "layer 1"}},
      {"KV heads", [](Graph& g) { g.kv_groups[0].kv_heads = 1; }, {"'0.attend'", "KV heads"}},
      {"unused layer", [](Graph& g) { g.kv_groups[0].layers = 2; }, {"group 0", "layer 1"}},
      {"huge heads",
       [](Graph& g) { std::get<AttendAttr>(node_of(g, "0.attend").attr).heads = 2000000000; },
       {"'0.attend'"}},
      {"norm vector",
       [](Graph& g) { node_of(g, "0.norm").attr = NormAttr{1e-5f, 4}; },
       {"'0.norm'", "needs [4, 1]"}},
      {"norm heads",
       [](Graph& g) { node_of(g, "0.norm").attr = NormAttr{1e-5f, 3}; },
       {"'0.norm'", "heads of 3"}},
      {"select", [](Graph& g) { g.values[node_of(g, "select").out].rows = Rows::kTokens; }, {"'select'"}},
      {"vocab", [](Graph& g) { g.vocab = 21; }, {"logits", "21"}},
      {"vocab below its table", [](Graph& g) { g.vocab = 19; }, {"embed", "[19, 8]"}},
      {"layer norm without a weight",
       [](Graph& g) {
         node_of(g, "0.norm").op = Op::kLayerNorm;
         node_of(g, "0.norm").weight = kNone;
       },
       {"'0.norm'", "weight"}},
      {"borrowed before it is written",
       [](Graph& g) { node_of(g, "0.attend").in.resize(1); },
       {"'0.attend'", "not yet written"}},
      {"two inputs of attention",
       [](Graph& g) { node_of(g, "0.attend").in.resize(2); },
       {"'0.attend'", "2 inputs"}},
      {"columns beyond",
       [](Graph& g) {
         Node& n = node_of(g, "0.add");
         n.op = Op::kColumns, n.in.resize(1), n.attr = ColumnAttr{1};
       },
       {"'0.add'", "columns 1 to 9 of 8"}},
      {"columns without a number",
       [](Graph& g) {
         Node& n = node_of(g, "0.add");
         n.op = Op::kColumns, n.in.resize(1);
       },
       {"'0.add'", "ColumnAttr"}},
      {"factor column",
       [](Graph& g) {
         Node& n = node_of(g, "0.add");
         n.op = Op::kAddScaled, n.in.push_back(node_of(g, "0.k").out), n.attr = ColumnAttr{4};
       },
       {"'0.add'", "columns 4 to 5 of 4"}},
      {"least mean square",
       [](Graph& g) { node_of(g, "0.add").op = Op::kMatchRms, node_of(g, "0.add").attr = FactorAttr{0}; },
       {"'0.add'", "least mean square"}},
      {"multiplied by a vector of another size",
       [](Graph& g) {
         Node& n = node_of(g, "0.add");
         n.op = Op::kMultiply, n.in.resize(1), n.weight = node_of(g, "0.v").bias;
       },
       {"'0.add'", "0.v_bias"}},
      {"no logits", [](Graph& g) { g.logits = kNone; }, {"logits"}},
      {"weight twice", [](Graph& g) { g.weights[1].name = g.weights[0].name; }, {"'embed'", "twice"}},
      {"rotary heads",
       [](Graph& g) { g.weights[node_of(g, "0.q").weight].rotary_heads = 3; },
       {"'0.q'", "rotary"}},
  };
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.what);
    Graph graph = valid_graph();
    damage.apply(graph);
    const Status status = graph.validate();
    EXPECT_FALSE(status.ok());
    for (const std::string& part : damage.message)
      EXPECT_THAT(status.message(), HasSubstr(part));
  }
}

TEST(GraphText, has_one_line_per_node_with_shapes_and_weights) {
  const std::string text = graph_text(valid_graph());
  EXPECT_THAT(text, HasSubstr("= linear(%1)  0.v weight=0.v[4, 8] bias=0.v_bias[4]\n"));
  EXPECT_THAT(text, HasSubstr("group=0 layer=0 heads=4/2x2"));
  EXPECT_THAT(text, HasSubstr("[L, 20] = linear"));
  EXPECT_THAT(text, HasSubstr("<- logits"));
}

// Two layers of experts; `change` breaks something before validation.
Status validate_experts(const std::function<void(Graph&, Node&)>& change) {
  GraphBuilder b;
  const WeightId table = b.matrix("embed", kVocab, kHidden);
  const ValueId x = b.embed("embed", table);
  const ValueId scores = b.linear("router", x, b.matrix("router", 3, kHidden));
  std::vector<ExpertWeights> set;
  for (int e = 0; e < 3; e++) {
    const std::string name = std::to_string(e);
    const FusedPart part{"stack", 0, 6, 1, 3, e};
    set.push_back({b.matrix("gate" + name, 6, kHidden, 0, part), b.matrix("up" + name, 6, kHidden),
                   b.matrix("down" + name, kHidden, 6), kNone, kNone, b.vector("bias" + name, kHidden)});
  }
  const ValueId y = b.experts("experts", {x, scores}, set, {.set = 0, .chosen = 2});
  const ValueId logits = b.linear("head", b.select_logit_rows("select", y), table);
  Graph graph = std::move(b).finish(logits, kVocab).value();
  change(graph, node_of(graph, "experts"));
  return graph.validate();
}

TEST(GraphValidate, refuses_experts_that_do_not_fit) {
  using Change = std::function<void(Graph&, Node&)>;
  EXPECT_TRUE(validate_experts([](Graph&, Node&) {}).ok());
  const auto attr = [](Node& node) -> ExpertsAttr& { return std::get<ExpertsAttr>(node.attr); };
  for (const auto& [change, message] : std::initializer_list<std::pair<Change, const char*>>{
           {[&](Graph&, Node& n) { attr(n).chosen = 4; }, "chooses 4 of 3 experts"},
           {[&](Graph&, Node& n) { attr(n).chosen = 0; }, "chooses 0 of 3 experts"},
           {[&](Graph&, Node& n) { attr(n).set = 1; }, "set of experts does not exist"},
           {[&](Graph&, Node& n) { attr(n).unit = GatedUnit::kClampedSilu; }, "limit is not positive"},
           {[&](Graph& g, Node&) { g.expert_sets[0][2].down_bias = kNone; }, "a bias that others lack"},
           {[&](Graph& g, Node&) { g.expert_sets[0][1].up = g.expert_sets[0][1].down; }, "needs [6, 8]"},
           {[&](Graph& g, Node&) { g.expert_sets[0].pop_back(); }, "widths 3 and 2 differ"},
           {[&](Graph&, Node& n) { n.in.pop_back(); }, "needs 2 to 4"},
           {[&](Graph& g, Node&) { g.weights[2].expert = 3; }, "stack that it is a part of is too small"},
           {[&](Graph& g, Node&) { g.weights[2].row_step = 2; }, "not within the tensor"},
       }) {
    EXPECT_THAT(validate_experts(change).message(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace invar
