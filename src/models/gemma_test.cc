// What the newer Gemma families read from their files and record; their numbers are held by the oracles.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>

#include "format/test_files.h"
#include "models/model.h"

namespace invar {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const std::string kOracles = INVAR_TEST_DATA "/oracles/models/";

std::shared_ptr<const Model> load(const std::string& name) {
  const auto model = Model::load(kOracles + name, {.threads = 2, .progress = false});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *model;
}

// Of the oracle with one text of config.json replaced.
std::string error_with(const std::string& oracle, const std::string& from, const std::string& to) {
  const TemporaryFolder folder;
  fs::copy(kOracles + oracle + "/model.safetensors", folder.path("model.safetensors"));
  const auto bytes = read_file(kOracles + oracle + "/config.json");
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t at = text.find(from);
  if (at == std::string::npos) return "test is broken: no " + from;
  write_file(folder.path("config.json"), text.replace(at, from.size(), to));
  const auto model = Model::load(folder.path(), {.threads = 2, .progress = false});
  return model.ok() ? "ok" : model.status().message();
}

const Node* find_site(const Graph& graph, const std::string& site) {
  for (const Node& node : graph.nodes)
    if (node.site == site) return &node;
  return nullptr;
}

// "group/layer" of every attention, "-" behind those that write nothing.
std::string attention_of(const Graph& graph) {
  std::string text;
  for (const Node& node : graph.nodes) {
    if (node.op != Op::kAttend) continue;
    const auto& attr = std::get<AttendAttr>(node.attr);
    text += fmt::format("{}{}/{}{}", text.empty() ? "" : " ", attr.group, attr.layer,
                        node.in.size() == 1 ? "-" : "");
  }
  return text;
}

TEST(Gemma4, the_last_layers_read_what_the_last_owner_of_their_kind_wrote) {
  const auto model = load("gemma4-e2b-style");
  const Graph& graph = model->graph();
  EXPECT_EQ(attention_of(graph), "0/0 0/1 1/0 0/2 0/2- 0/2- 1/0-");
  EXPECT_EQ(graph.kv_groups[0].window, 12);
  EXPECT_EQ(graph.kv_groups[0].head_dim, 16);
  EXPECT_EQ(graph.kv_groups[1].window, 0);
  EXPECT_EQ(graph.kv_groups[1].head_dim, 32);
  EXPECT_EQ(find_site(graph, "layers.4.attn.k"), nullptr);
  EXPECT_EQ(graph.values[find_site(graph, "layers.3.mlp.gate")->out].width, 96);
  EXPECT_EQ(graph.values[find_site(graph, "layers.4.mlp.gate")->out].width, 192);
}

TEST(Gemma4, a_layer_without_values_takes_its_keys_before_their_norm) {
  const auto model = load("gemma4-12b-style");
  const Graph& graph = model->graph();
  const Node* k = find_site(graph, "layers.2.attn.k");
  EXPECT_EQ(find_site(graph, "layers.2.attn.v"), nullptr);
  EXPECT_EQ(find_site(graph, "layers.2.attn.v_norm")->in[0], k->out);
  EXPECT_EQ(find_site(graph, "layers.2.attn.k_norm")->in[0], k->out);
  EXPECT_EQ(find_site(graph, "layers.2.attn.v_norm")->weight, kNone);
  EXPECT_NE(find_site(graph, "layers.1.attn.v"), nullptr);
  EXPECT_EQ(graph.kv_groups[0].kv_heads, 2);
  EXPECT_EQ(graph.kv_groups[1].kv_heads, 1);
  // A quarter of the pairs of the whole head rotates.
  const Rope& rope =
      graph.ropes[size_t(std::get<RopeAttr>(find_site(graph, "layers.2.attn.q_rope")->attr).rope)];
  EXPECT_EQ(rope.dim, 32);
  EXPECT_EQ(rope.inv_freq[0], 1.0f);
  EXPECT_GT(rope.inv_freq[3], 0.0f);
  EXPECT_EQ(rope.inv_freq[4], 0.0f);
}

TEST(Gemma4, the_decoder_of_a_model_of_several_parts_is_found_in_its_files) {
  const auto model = load("gemma4-e2b-std-nested");
  EXPECT_EQ(model->info().family, "gemma4_text");
  EXPECT_EQ(model->info().layers, 8);
  EXPECT_EQ(model->source().files().size(), 5u);
  EXPECT_EQ(attention_of(model->graph()), "0/0 0/1 0/2 1/0 0/2- 0/2- 0/2- 1/0-");
}

TEST(Gemma4, keys_that_do_not_fit_are_named) {
  const std::string shared = "\"num_kv_shared_layers\": 3", e2b = "gemma4-e2b-style";
  EXPECT_THAT(error_with(e2b, shared, "\"num_kv_shared_layers\": 7"), HasSubstr("7 of 7 layers"));
  EXPECT_THAT(error_with(e2b, shared, "\"num_kv_shared_layers\": -1"), HasSubstr("-1 of 7 layers"));
  EXPECT_THAT(error_with(e2b, shared, "\"num_kv_shared_layers\": 5"), HasSubstr("layer 2 reads keys"));
  EXPECT_THAT(error_with(e2b, shared, "\"num_kv_shared_layers\": 2"), HasSubstr("layers.4.self_attn.k_proj"));
  EXPECT_THAT(error_with(e2b, "\"global_head_dim\": 32", "\"global_head_dim\": 33"), HasSubstr("33 is odd"));
  EXPECT_THAT(
      error_with(e2b, "\"hidden_size_per_layer_input\": 32", "\"hidden_size_per_layer_input\": 1000000"),
      HasSubstr("hidden_size_per_layer_input is 1000000"));
  EXPECT_THAT(error_with(e2b, "\"vocab_size_per_layer_input\": 480", "\"vocab_size_per_layer_input\": 481"),
              HasSubstr("vocab_size_per_layer_input is 481"));
  EXPECT_THAT(error_with(e2b, "\"rope_type\": \"proportional\"", "\"rope_type\": \"yarn\""),
              HasSubstr("\"yarn\""));
  EXPECT_THAT(
      error_with(e2b, "\"use_bidirectional_attention\": null", "\"use_bidirectional_attention\": \"all\""),
      HasSubstr("use_bidirectional_attention"));
  EXPECT_EQ(
      error_with(e2b, "\"use_bidirectional_attention\": null", "\"use_bidirectional_attention\": \"vision\""),
      "ok");
  EXPECT_THAT(error_with("gemma4-12b-style", "\"num_global_key_value_heads\": 1",
                         "\"num_global_key_value_heads\": 3"),
              HasSubstr("4 attention heads are no multiple of 3"));
}

// As the published files of the larger sizes: the rest is Hugging Face's default.
TEST(Gemma3, a_file_need_not_say_what_its_configuration_class_does) {
  EXPECT_THAT(error_with("gemma3-text-270m-shape", "\"num_attention_heads\": 2,", ""),
              HasSubstr("[128, 64]"));
  EXPECT_THAT(error_with("gemma3-text-270m-shape", "\"num_key_value_heads\": 1,", ""),
              HasSubstr("2 attention heads are no multiple of 4"));
  EXPECT_THAT(error_with("gemma3-text-270m-shape", "\"vocab_size\": 480", "\"other\": 1"),
              HasSubstr("[262208, 64]"));
  EXPECT_EQ(error_with("gemma3-text-270m-shape", "\"rms_norm_eps\": 1e-06,", ""), "ok");
  EXPECT_EQ(error_with("gemma3-text-270m-shape", "\"max_position_embeddings\": 512,", ""), "ok");
}

// A key that is called otherwise is not there.
TEST(Gemma2, a_gguf_file_without_softcaps_has_those_of_all_models) {
  const auto bytes = read_file(INVAR_TEST_DATA "/oracles/gguf/lossless/gemma2-std.gguf");
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const std::string key : {"gemma2.attn_logit_softcapping", "gemma2.final_logit_softcapping"}) {
    const size_t at = text.find(key);
    ASSERT_NE(at, std::string::npos) << key;
    text.replace(at, 6, "gemma9");
  }
  const TemporaryFolder folder;
  write_file(folder.path("m.gguf"), text);
  const auto model = Model::load(folder.path("m.gguf"), {.threads = 2, .progress = false});
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(std::get<AttendAttr>(find_site((*model)->graph(), "layers.0.attn")->attr).softcap, 50);
  const auto is_cap = [](const Node& n) { return n.op == Op::kSoftcap; };
  const auto& nodes = (*model)->graph().nodes;
  const auto head = std::find_if(nodes.begin(), nodes.end(), is_cap);
  ASSERT_NE(head, nodes.end());
  EXPECT_EQ(std::get<FactorAttr>(head->attr).factor, 30);
}

TEST(Gemma3, the_base_of_layers_with_a_window_is_checked) {
  EXPECT_THAT(error_with("gemma3-text", "\"rope_local_base_freq\": 10000.0", "\"rope_local_base_freq\": -1"),
              HasSubstr("rope_local_base_freq: rope_theta is -1"));
}

TEST(Gemma4, ropes_of_layer_types_are_all_there_and_objects) {
  const std::string e2b = "gemma4-e2b-style", all = "\"rope_parameters\": {";
  for (const char* wrong : {"\"x\"", "[]", "3", "true"})
    for (const char* key : {"full_attention", "sliding_attention"})
      EXPECT_THAT(error_with(e2b, fmt::format("\"{}\": {{", key),
                             fmt::format("\"{}\": {}, \"unread\": {{", key, wrong)),
                  HasSubstr(fmt::format("\"rope_parameters.{}\" should be an object", key)));
  EXPECT_THAT(error_with(e2b, all, "\"rope_parameters\": 4, \"unread\": {"),
              HasSubstr("\"rope_parameters\" should be an object"));
  EXPECT_THAT(error_with(e2b, "\"full_attention\": {", "\"unread\": {"),
              HasSubstr("rope_parameters.full_attention is missing"));
}

TEST(Gemma3n, streams_are_mixed_before_and_after_every_layer) {
  const auto model = load("gemma3n-text");
  const Graph& graph = model->graph();
  EXPECT_EQ(attention_of(graph), "0/0 0/1 1/0 0/2 0/2- 0/2- 1/0-");
  const Node* last = find_site(graph, "layers.6.altup.predict.3.3");
  EXPECT_EQ(std::get<ColumnAttr>(last->attr).column, 15);
  // Half of a normal distribution's upper tail of 5 %: 1.6448536.
  EXPECT_FLOAT_EQ(std::get<FactorAttr>(find_site(graph, "layers.1.mlp.sparse")->attr).factor, 1.6448536f);
  EXPECT_EQ(find_site(graph, "layers.2.mlp.sparse"), nullptr);
}

TEST(Gemma3n, keys_that_do_not_fit_are_named) {
  const std::string name = "gemma3n-text";
  EXPECT_THAT(error_with(name, "\"altup_active_idx\": 0", "\"altup_active_idx\": 4"),
              HasSubstr("altup_active_idx is 4"));
  EXPECT_THAT(error_with(name, "\"altup_num_inputs\": 4", "\"altup_num_inputs\": 99"),
              HasSubstr("altup_num_inputs is 99"));
  EXPECT_THAT(error_with(name, "0.95,", "1.0,"), HasSubstr("activation_sparsity_pattern has 1"));
  EXPECT_THAT(error_with(name, "0.95,", ""), HasSubstr("6 numbers for 7 layers"));
  EXPECT_THAT(error_with(name, "\"intermediate_size\": [\n    96", "\"intermediate_size\": [\n    95"),
              HasSubstr("intermediate_size that differs"));
}

}  // namespace
}  // namespace invar
