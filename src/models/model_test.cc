#include "models/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <functional>

#include "format/test_files.h"
#include "graph/graph.h"

namespace invar {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const std::string kOracles = INVAR_TEST_DATA "/oracles";

Result<std::shared_ptr<const Model>> load(const std::string& path, const std::string& cache = "") {
  return Model::load(path, {.cache_dir = cache, .threads = 2, .progress = false});
}
std::string error_of(const std::string& path) {
  const auto model = load(path);
  return model.ok() ? "ok" : model.status().message();
}

struct Expected {
  const char* path;
  const char* family;
  int32_t vocab, hidden, layers, heads, kv_heads, head_dim, ffn, context;
  bool tied;
};
const Expected kExpected[] = {
    {"models/gemma2-softcap", "gemma2", 480, 96, 4, 4, 2, 32, 160, 512, true},
    {"models/gemma3-text", "gemma3_text", 512, 96, 6, 4, 1, 32, 128, 512, true},
    {"models/glm4-sandwich", "glm4", 480, 64, 2, 4, 2, 16, 128, 512, false},
    {"models/granite-multipliers", "granite", 480, 64, 3, 4, 2, 16, 128, 512, true},
    {"models/mistral-swa", "mistral", 480, 64, 3, 4, 2, 24, 160, 512, false},
    {"models/olmo2-postnorm", "olmo2", 480, 64, 3, 4, 2, 16, 128, 512, false},
    {"models/olmo3-swa", "olmo3", 480, 64, 4, 4, 2, 16, 128, 128, false},
    {"models/phi3-longrope", "phi3", 480, 96, 2, 3, 1, 32, 128, 192, false},
    {"models/llama-linear-bias", "llama", 480, 64, 2, 4, 1, 32, 96, 512, false},
    {"models/llama-q256", "llama", 320, 256, 1, 8, 2, 32, 256, 512, false},
    {"models/llama-tied-rope-llama3", "llama", 512, 96, 3, 6, 2, 16, 192, 512, true},
    {"models/llama-untied", "llama", 480, 64, 2, 4, 2, 16, 160, 512, false},
    {"models/llama-yarn", "llama", 480, 64, 2, 4, 2, 32, 128, 128, true},
    {"models/qwen2-bias", "qwen2", 505, 64, 2, 4, 2, 16, 160, 512, true},
    {"models/qwen2-swa", "qwen2", 480, 64, 4, 2, 2, 32, 96, 512, false},
    {"models/qwen3-qknorm", "qwen3", 480, 96, 3, 4, 2, 32, 160, 512, true},
    {"models/smollm3-nope", "smollm3", 480, 64, 5, 4, 2, 16, 128, 512, true},
    {"gguf/lossless/llama-tied-rope-llama3.gguf", "llama", 512, 96, 3, 6, 2, 16, 192, 512, true},
    {"gguf/lossless/llama-untied.gguf", "llama", 480, 64, 2, 4, 2, 16, 160, 512, false},
    {"gguf/lossless/qwen2-bias.gguf", "qwen2", 505, 64, 2, 4, 2, 16, 160, 512, true},
    {"gguf/lossless/qwen3-qknorm.gguf", "qwen3", 480, 96, 3, 4, 2, 32, 160, 512, true},
    {"gguf/lossless/smollm3-nope.gguf", "smollm3", 480, 64, 5, 4, 2, 16, 128, 512, true},
};

TEST(Model, every_oracle_of_these_families_loads_with_its_dimensions) {
  for (const Expected& e : kExpected) {
    const auto model = load(kOracles + "/" + e.path);
    ASSERT_TRUE(model.ok()) << model.status().message();
    const ModelInfo& i = (*model)->info();
    EXPECT_EQ(i.family, e.family) << e.path;
    EXPECT_EQ(
        std::tie(i.vocab, i.hidden, i.layers, i.heads, i.kv_heads, i.head_dim, i.ffn, i.context_length,
                 i.tied_head),
        std::tie(e.vocab, e.hidden, e.layers, e.heads, e.kv_heads, e.head_dim, e.ffn, e.context, e.tied))
        << e.path;
    EXPECT_TRUE((*model)->graph().validate().ok());
    EXPECT_EQ((*model)->identity().size(), 64u);
  }
}

TEST(Model, every_supported_quantization_loads) {
  int files = 0;
  for (const auto& item : fs::directory_iterator(kOracles + "/gguf/quant")) {
    if (item.path().extension() != ".gguf") continue;
    const auto model = load(item.path());
    EXPECT_TRUE(model.ok()) << model.status().message();
    files++;
  }
  EXPECT_EQ(files, 24);
}

const Node* find_site(const Graph& graph, const std::string& site) {
  for (const Node& node : graph.nodes)
    if (node.site == site) return &node;
  return nullptr;
}

TEST(Model, sites_are_stable_and_families_differ_where_they_should) {
  const auto llama = *load(kOracles + "/models/llama-linear-bias");
  std::vector<std::string> sites;
  for (const Node& node : llama->graph().nodes)
    if (node.op == Op::kLinear || node.op == Op::kEmbed) sites.push_back(node.site);
  std::vector<std::string> want = {"embed"};
  for (int l = 0; l < 2; ++l)
    for (const char* s : {"attn.q", "attn.k", "attn.v", "attn.o", "mlp.gate", "mlp.up", "mlp.down"})
      want.push_back(fmt::format("layers.{}.{}", l, s));
  want.push_back("head");
  EXPECT_EQ(sites, want);
  for (const char* site : {"layers.1.attn.q", "layers.1.attn.o", "layers.1.mlp.down"})
    EXPECT_NE(find_site(llama->graph(), site)->bias, kNone) << site;
  EXPECT_EQ(find_site(llama->graph(), "head")->bias, kNone);

  const auto qwen2 = *load(kOracles + "/models/qwen2-bias");
  EXPECT_NE(find_site(qwen2->graph(), "layers.0.attn.v")->bias, kNone);
  EXPECT_EQ(find_site(qwen2->graph(), "layers.0.attn.o")->bias, kNone);
  EXPECT_EQ(find_site(qwen2->graph(), "head")->weight, find_site(qwen2->graph(), "embed")->weight);

  const auto qwen3 = *load(kOracles + "/models/qwen3-qknorm");
  EXPECT_EQ(std::get<NormAttr>(find_site(qwen3->graph(), "layers.2.attn.k_norm")->attr).head_dim, 32);

  const auto smollm3 = *load(kOracles + "/models/smollm3-nope");
  EXPECT_NE(find_site(smollm3->graph(), "layers.2.attn.q_rope"), nullptr);
  EXPECT_EQ(find_site(smollm3->graph(), "layers.3.attn.q_rope"), nullptr);
  EXPECT_NE(find_site(smollm3->graph(), "layers.4.attn.q_rope"), nullptr);

  const auto yarn = *load(kOracles + "/models/llama-yarn");
  EXPECT_TRUE(yarn->graph().ropes[0].scaled);
  EXPECT_EQ(std::get<AttendAttr>(find_site(yarn->graph(), "layers.1.attn")->attr).layer, 1);
}

// Rows of q and k lie interleaved in the GGUF files of llama and smollm3.
TEST(Model, a_gguf_file_and_its_safetensors_give_the_same_packed_bytes) {
  for (const char* name :
       {"gemma-geglu", "gemma2-std", "gemma3-text-270m-shape", "gemma4-12b-style", "glm4-sandwich",
        "granite-multipliers", "llama-tied-rope-llama3", "llama-untied", "minicpm-scaled", "olmo2-postnorm",
        "phi3-longrope", "qwen2-bias", "qwen3-qknorm", "smollm3-nope", "starcoder2-layernorm"}) {
    const auto gguf = *load(fmt::format("{}/gguf/lossless/{}.gguf", kOracles, name));
    const auto hf = *load(fmt::format("{}/models/{}", kOracles, name));
    ASSERT_EQ(gguf->graph().weights.size(), hf->graph().weights.size());
    for (size_t i = 0; i < hf->graph().weights.size(); ++i) {
      const std::string& weight = hf->graph().weights[i].name;
      ASSERT_EQ(gguf->graph().weights[i].name, weight);
      if (hf->graph().weights[i].kind == Weight::Kind::kMatrix) {
        const PackedMatrix a = gguf->weights().matrices[i], b = hf->weights().matrices[i];
        ASSERT_EQ(a.form, b.form) << name << " " << weight;
        EXPECT_EQ(std::memcmp(a.data, b.data, b.bytes()), 0) << name << " " << weight;
      } else {
        const auto a = gguf->weights().vectors[i], b = hf->weights().vectors[i];
        ASSERT_EQ(a.size(), b.size());
        EXPECT_EQ(std::memcmp(a.data(), b.data(), b.size_bytes()), 0) << name << " " << weight;
      }
    }
    if (std::string(name) != "llama-tied-rope-llama3") {  // there GGUF stores divisors instead of the rule
      ASSERT_EQ(gguf->graph().ropes.size(), hf->graph().ropes.size());
      for (size_t r = 0; r < hf->graph().ropes.size(); ++r)
        for (const auto field : {&Rope::inv_freq, &Rope::long_inv_freq})
          EXPECT_EQ(gguf->graph().ropes[r].*field, hf->graph().ropes[r].*field) << name;
    }
  }
}

TEST(Model, weights_come_from_the_cache_folder_when_there_is_one) {
  const TemporaryFolder cache;
  for (int round = 0; round < 2; ++round) {
    const auto model = load(kOracles + "/gguf/quant/llama-q256-Q4_K_M-mix.gguf", cache.path());
    ASSERT_TRUE(model.ok());
    EXPECT_FALSE((*model)->packed_in_memory());
    EXPECT_GT((*model)->packed_bytes(), 400000u);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(cache.path("packed")), fs::directory_iterator()), 1);
  EXPECT_TRUE((*load(kOracles + "/models/qwen2-bias"))->packed_in_memory());
}

// ---- refusals

TEST(ModelRefusal, types_and_architectures_are_named) {
  EXPECT_THAT(error_of("/nowhere/model.gguf"), HasSubstr("no such file"));
  const TemporaryFolder folder;
  write_file(folder.path("m.gguf"), GgufWriter().string("general.architecture", "mamba9").build());
  EXPECT_THAT(error_of(folder.path("m.gguf")),
              testing::AllOf(HasSubstr("\"mamba9\""), HasSubstr("olmo3, phi3, qwen2")));
  write_file(folder.path("n.gguf"), GgufWriter().u32("general.architecture", 3).build());
  EXPECT_THAT(error_of(folder.path("n.gguf")), HasSubstr("general.architecture is missing"));
}

// A folder like an oracle with one text of config.json replaced.
std::string error_with(const std::string& oracle, const std::string& from, const std::string& to) {
  const TemporaryFolder folder;
  const std::string source = kOracles + "/models/" + oracle;
  fs::copy(source + "/model.safetensors", folder.path("model.safetensors"));
  const auto bytes = read_file(source + "/config.json");
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t at = text.find(from);
  if (at == std::string::npos) return "test is broken: no " + from;
  write_file(folder.path("config.json"), text.replace(at, from.size(), to));
  return error_of(folder.path());
}

TEST(ModelRefusal, configurations_that_change_the_mathematics_are_refused_by_key) {
  const auto llama = [](const std::string& extra) {
    return error_with("llama-untied", "\"head_dim\": 16,", "\"head_dim\": 16, " + extra + ",");
  };
  EXPECT_EQ(llama("\"unknown_key\": 3"), "ok");
  EXPECT_THAT(llama("\"sliding_window\": 8"), HasSubstr("sliding_window = 8"));
  EXPECT_THAT(llama("\"layer_types\": [\"sliding_attention\", \"full_attention\"]"),
              HasSubstr("sliding_attention"));
  EXPECT_THAT(llama("\"num_local_experts\": 8"), HasSubstr("num_local_experts = 8"));
  EXPECT_THAT(llama("\"attn_logit_softcapping\": 30.0"), HasSubstr("attn_logit_softcapping"));
  EXPECT_THAT(llama("\"final_logit_softcapping\": 30.0"), HasSubstr("final_logit_softcapping"));
  EXPECT_EQ(llama("\"final_logit_softcapping\": null"), "ok");
  EXPECT_THAT(llama("\"partial_rotary_factor\": 0.5"), HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(llama("\"quantization_config\": {\"quant_method\": \"bnb\"}"),
              HasSubstr("quantization_config (bnb)"));
  EXPECT_THAT(llama("\"embedding_multiplier\": 12"), HasSubstr("embedding_multiplier = 12"));
  EXPECT_EQ(llama("\"embedding_multiplier\": 1.0"), "ok");
  EXPECT_THAT(llama("\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 1.0}}"),
              HasSubstr("full_attention"));
  EXPECT_THAT(error_with("llama-untied", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\""),
              HasSubstr("\"gelu\""));
  for (const char* type : {"dynamic", "longrope", "su", "mrope", "nonsense"})
    EXPECT_THAT(error_with("llama-untied", "\"rope_scaling\": null",
                           fmt::format("\"rope_scaling\": {{\"rope_type\": \"{}\", \"factor\": 2.0}}", type)),
                HasSubstr(fmt::format("rope_scaling of type \"{}\"", type)));
  EXPECT_THAT(
      error_with("llama-untied", "\"rope_scaling\": null", "\"rope_scaling\": {\"rope_type\": \"linear\"}"),
      HasSubstr("rope_scaling.factor is missing"));
  EXPECT_THAT(error_with("qwen2-swa", "\"sliding_attention\",\n  \"sliding_attention\"",
                         "\"full_attention\",\"full_attention\""),
              "ok");
}

// The windows of the layers of `name` with other values in config.json, by layer; or the error.
std::string windows_of(const std::string& name,
                       const std::vector<std::pair<std::string, std::string>>& with) {
  const TemporaryFolder folder;
  const std::string source = kOracles + "/models/" + name;
  fs::copy(source + "/model.safetensors", folder.path("model.safetensors"));
  const auto bytes = read_file(source + "/config.json");
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const auto& [from, to] : with) {
    const size_t at = text.find(from);
    if (at == std::string::npos) return "test is broken: no " + from;
    text.replace(at, from.size(), to);
  }
  write_file(folder.path("config.json"), text);
  const auto model = load(folder.path());
  if (!model.ok()) return model.status().message();
  std::vector<int32_t> windows;
  for (const Node& node : (*model)->graph().nodes)
    if (node.op == Op::kAttend)
      windows.push_back((*model)->graph().kv_groups[size_t(std::get<AttendAttr>(node.attr).group)].window);
  return fmt::format("{}", fmt::join(windows, " "));
}

TEST(Model, a_window_counts_for_the_layers_that_use_it) {
  const std::string types =
      "\"layer_types\": [\n  \"full_attention\",\n  \"full_attention\",\n  \"sliding_attention\",\n  "
      "\"sliding_attention\"\n ],";
  const std::string first = "\"max_window_layers\": 2,", used = "\"use_sliding_window\": true,";
  const std::string window = "\"sliding_window\": 13,", full = "\"full_attention\"";
  EXPECT_EQ(windows_of("qwen2-swa", {}), "0 0 13 13");
  // Listed layers count whatever else is said.
  EXPECT_EQ(windows_of("qwen2-swa", {{full, "\"sliding_attention\""}}), "13 0 13 13");
  EXPECT_THAT(windows_of("qwen2-swa", {{full, "\"chunked_attention\""}}), HasSubstr("\"chunked_attention\""));
  EXPECT_THAT(windows_of("qwen2-swa", {{full + ",", ""}}), HasSubstr("layer_types has 3 elements for 4"));
  EXPECT_THAT(windows_of("qwen2-swa", {{used, ""}}), HasSubstr("use_sliding_window is not true"));
  EXPECT_THAT(windows_of("qwen2-swa", {{window, ""}}), HasSubstr("sliding_window is missing"));
  EXPECT_THAT(windows_of("qwen2-swa", {{"\"sliding_window\": 13", "\"sliding_window\": 0"}}),
              HasSubstr("sliding_window is 0"));
  // Without a list, those from max_window_layers on.
  EXPECT_EQ(windows_of("qwen2-swa", {{types, ""}}), "0 0 13 13");
  EXPECT_EQ(windows_of("qwen2-swa", {{types, ""}, {first, "\"max_window_layers\": 3,"}}), "0 0 0 13");
  EXPECT_EQ(windows_of("qwen2-swa", {{types, ""}, {first, ""}}), "0 0 0 0");
  EXPECT_EQ(windows_of("qwen2-swa", {{types, ""}, {used, ""}}), "0 0 0 0");
  EXPECT_EQ(windows_of("qwen2-swa", {{types, ""}, {used, ""}, {window, ""}}), "0 0 0 0");
  EXPECT_EQ(windows_of("qwen2-bias", {{"\"sliding_window\": null", "\"sliding_window\": 4"}}), "0 0");
  // SmolLM3: those that do not rotate.
  EXPECT_EQ(windows_of("smollm3-nope", {{"\"layer_types\"", "\"other\""},
                                        {"\"sliding_window\": null", "\"sliding_window\": 9"},
                                        {"\"use_sliding_window\": false", "\"use_sliding_window\": true"}}),
            "0 0 0 9 0");
}

TEST(Model, layers_of_equal_windows_share_a_group) {
  const auto model = *load(kOracles + "/models/qwen2-swa");
  const std::vector<KvGroup>& groups = model->graph().kv_groups;
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].layers, 2);
  EXPECT_EQ(groups[0].window, 0);
  EXPECT_EQ(groups[1].layers, 2);
  EXPECT_EQ(groups[1].window, 13);
}

TEST(Model, windows_of_families_that_need_no_flag) {
  const std::string window = "\"sliding_window\": 16", none = "\"sliding_window\": null";
  EXPECT_EQ(windows_of("mistral-swa", {}), "16 16 16");
  EXPECT_EQ(windows_of("mistral-swa", {{window, none}}), "0 0 0");
  EXPECT_THAT(windows_of("mistral-swa", {{window, "\"sliding_window\": -1"}}),
              HasSubstr("sliding_window is -1"));
  EXPECT_EQ(windows_of("phi3-longrope", {}), "29 29");
  // Listed, or every second, fourth, sixth layer sees everything.
  EXPECT_EQ(windows_of("gemma2-softcap", {}), "16 0 16 0");
  EXPECT_EQ(windows_of("gemma2-softcap", {{"\"layer_types\"", "\"other\""}}), "16 0 16 0");
  EXPECT_EQ(windows_of("olmo3-swa", {{"\"layer_types\"", "\"other\""}}), "11 11 11 0");
  EXPECT_EQ(windows_of("gemma3-text-270m-shape", {{"\"layer_types\"", "\"other\""}}), "16 16 16 16 16 0 16");
  EXPECT_EQ(windows_of("gemma3-text-270m-shape",
                       {{"\"layer_types\"", "\"other\""},
                        {"\"sliding_window_pattern\": 6", "\"sliding_window_pattern\": 3"}}),
            "16 16 0 16 16 0 16");
  EXPECT_THAT(windows_of("gemma3-text-270m-shape",
                         {{"\"layer_types\"", "\"other\""},
                          {"\"sliding_window_pattern\": 6", "\"sliding_window_pattern\": 0"}}),
              HasSubstr("sliding_window_pattern is 0"));
}

TEST(Model, layers_with_a_window_may_rotate_by_their_own_rope) {
  const auto olmo3 = *load(kOracles + "/models/olmo3-swa");
  ASSERT_EQ(olmo3->graph().ropes.size(), 2u);
  const auto rope_of = [&](int layer) -> const Rope& {
    const auto* node = find_site(olmo3->graph(), fmt::format("layers.{}.attn.q_rope", layer));
    return olmo3->graph().ropes[size_t(std::get<RopeAttr>(node->attr).rope)];
  };
  EXPECT_FALSE(rope_of(0).scaled);
  EXPECT_EQ(&rope_of(0), &rope_of(2));
  EXPECT_TRUE(rope_of(3).scaled);
  EXPECT_EQ(rope_of(3).attention_factor, 1.2f);
  const auto glm4 = *load(kOracles + "/models/glm4-sandwich");
  EXPECT_TRUE(glm4->graph().ropes[0].adjacent);
  EXPECT_EQ(glm4->graph().ropes[0].dim, 8);
}

TEST(Model, longrope_goes_by_the_length_of_the_prompt) {
  const auto phi3 = *load(kOracles + "/models/phi3-longrope");
  const Graph& graph = phi3->graph();
  ASSERT_EQ(graph.ropes.size(), 1u);
  EXPECT_EQ(graph.ropes[0].dim, 24);
  EXPECT_EQ(graph.ropes[0].inv_freq[0], 1.0f);
  EXPECT_EQ(graph.ropes[0].long_inv_freq[0], 1.0f / 1.1f);
  EXPECT_FALSE(graph.rotates_long(48));
  EXPECT_TRUE(graph.rotates_long(49));
  EXPECT_FALSE((*load(kOracles + "/models/llama-yarn"))->graph().rotates_long(1 << 20));
}

TEST(Model, newer_rope_parameters_mean_the_same_as_rope_scaling) {
  const std::string old_form =
      "\"rope_theta\": 5000.0,\n \"rope_scaling\": {\n  \"factor\": 8.0,\n  \"high_freq_factor\": 4.0,\n  "
      "\"low_freq_factor\": "
      "1.0,\n  \"original_max_position_embeddings\": 32,\n  \"rope_type\": \"llama3\"\n }";
  const TemporaryFolder folder;
  const std::string source = kOracles + "/models/llama-tied-rope-llama3";
  fs::copy(source + "/model.safetensors", folder.path("model.safetensors"));
  const auto bytes = read_file(source + "/config.json");
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t at = text.find(old_form);
  ASSERT_NE(at, std::string::npos);
  write_file(folder.path("config.json"),
             text.replace(at, old_form.size(),
                          R"("rope_parameters": {"rope_theta": 5000.0, "factor": 8.0, "high_freq_factor": 4.0,
        "low_freq_factor": 1.0, "original_max_position_embeddings": 32, "rope_type": "llama3"})"));
  const auto changed = load(folder.path());
  ASSERT_TRUE(changed.ok()) << changed.status().message();
  EXPECT_EQ((*changed)->graph().ropes[0].inv_freq, (*load(source))->graph().ropes[0].inv_freq);
}

// config.json of the tiny Llama with YaRN with another rope_scaling, and more behind it.
std::string yarn_error(const std::string& scaling, const std::string& more = "") {
  return error_with("llama-yarn", "\"rope_scaling\": {",
                    more + "\"rope_scaling\": " + scaling + ", \"unread\": {");
}

TEST(ModelRefusal, a_rope_that_is_not_understood_is_never_a_plain_one) {
  for (const char* wrong : {"\"yarn\"", "4.0", "[\"yarn\", 4.0]", "true"}) {
    EXPECT_THAT(yarn_error(wrong), HasSubstr("\"rope_scaling\" should be an object")) << wrong;
    EXPECT_THAT(yarn_error("null", fmt::format("\"rope_parameters\": {}, ", wrong)),
                HasSubstr("\"rope_parameters\" should be an object"))
        << wrong;
  }
  for (const char* key : {"factor", "low_freq_factor", "beta_fast", "attention_factor", "mscale"})
    EXPECT_THAT(yarn_error(fmt::format("{{\"{}\": 4.0, \"original_max_position_embeddings\": 32}}", key)),
                testing::AllOf(HasSubstr(fmt::format("rope_scaling has {}, but no rope_type", key)),
                               HasSubstr("add the rope_type")));
  EXPECT_EQ(yarn_error("{}"), "ok");
  EXPECT_EQ(yarn_error("{\"rope_type\": \"default\", \"factor\": 4.0}"), "ok");
  const auto layers = [](const std::string& full, const std::string& window) {
    return error_with(
        "olmo3-swa", "\"rope_parameters\": {",
        fmt::format(
            "\"rope_parameters\": {{\"full_attention\": {}, \"sliding_attention\": {}}}, \"unread\": {{",
            full, window));
  };
  EXPECT_EQ(layers("{\"rope_theta\": 1e4}", "{\"rope_theta\": 1e4}"), "ok");
  EXPECT_THAT(layers("\"x\"", "{\"rope_theta\": 1e4}"),
              HasSubstr("rope_parameters.full_attention\" should be"));
  EXPECT_THAT(layers("{\"rope_theta\": 1e4}", "3"),
              HasSubstr("rope_parameters.sliding_attention\" should be"));
  EXPECT_THAT(layers("{\"rope_theta\": 1e4}", "null"),
              HasSubstr("rope_parameters.sliding_attention is missing"));
}

TEST(Model, rope_scaling_counts_where_rope_parameters_are_there_too) {
  const TemporaryFolder folder;
  const std::string source = kOracles + "/models/llama-yarn";
  fs::copy(source + "/model.safetensors", folder.path("model.safetensors"));
  const auto bytes = read_file(source + "/config.json");
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  write_file(folder.path("config.json"), text.insert(1, R"("rope_parameters": {"rope_theta": 77.0},)"));
  const auto both = load(folder.path());
  ASSERT_TRUE(both.ok()) << both.status().message();
  EXPECT_EQ((*both)->graph().ropes[0].inv_freq, (*load(source))->graph().ropes[0].inv_freq);
  EXPECT_TRUE((*both)->graph().ropes[0].scaled);
}

TEST(ModelRefusal, keys_of_a_family_are_checked_by_name) {
  EXPECT_THAT(error_with("granite-multipliers", "\"logits_scaling\": 2.5", "\"logits_scaling\": 0"),
              HasSubstr("logits_scaling is 0, not a positive factor"));
  EXPECT_THAT(
      error_with("granite-multipliers", "\"residual_multiplier\": 0.35", "\"residual_multiplier\": \"x\""),
      HasSubstr("residual_multiplier"));
  EXPECT_THAT(error_with("gemma2-std", "\"query_pre_attn_scalar\": 32", "\"query_pre_attn_scalar\": -3"),
              HasSubstr("query_pre_attn_scalar is -3"));
  EXPECT_THAT(error_with("gemma2-std", "\"attn_logit_softcapping\": 8.0", "\"attn_logit_softcapping\": -8.0"),
              HasSubstr("attn_logit_softcapping is -8"));
  EXPECT_THAT(error_with("gemma2-std", "\"gelu_pytorch_tanh\"", "\"silu\""),
              testing::AllOf(HasSubstr("hidden_act \"silu\""), HasSubstr("gelu_pytorch_tanh")));
  EXPECT_THAT(error_with("glm4-sandwich", "\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\": 1.5"),
              HasSubstr("partial_rotary_factor is 1.5"));
  EXPECT_THAT(error_with("phi3-longrope", "\"short_factor\"", "\"shorter_factor\""),
              HasSubstr("rope_scaling.short_factor is missing"));
  EXPECT_THAT(
      error_with("phi3-longrope", "\"partial_rotary_factor\": 0.75", "\"partial_rotary_factor\": 0.5"),
      HasSubstr("short_factor has 12 elements for 8 frequencies"));
  EXPECT_THAT(error_with("phi3-longrope", "\"longrope\"", "\"dynamic\""), HasSubstr("\"dynamic\""));
  EXPECT_THAT(error_with("phi3-longrope", "\"intermediate_size\": 128", "\"intermediate_size\": 96"),
              HasSubstr("gate_up_proj.weight\" is [256, 96], but the configuration wants [192, 96]"));
  EXPECT_THAT(error_with("gemma3-text", "\"use_bidirectional_attention\": false",
                         "\"use_bidirectional_attention\": true"),
              HasSubstr("use_bidirectional_attention"));
}

TEST(ModelRefusal, keys_of_wrong_type_or_size_are_named) {
  EXPECT_THAT(error_with("llama-untied", "\"hidden_size\": 64,", ""), HasSubstr("hidden_size is missing"));
  EXPECT_THAT(error_with("llama-untied", "\"hidden_size\": 64", "\"hidden_size\": \"64\""),
              HasSubstr("\"hidden_size\" should be"));
  for (const char* list : {"[1]", "[2]", "[2, 2]"})
    EXPECT_THAT(error_with("llama-untied", "\"num_hidden_layers\": 2",
                           fmt::format("\"num_hidden_layers\": {}", list)),
                HasSubstr("config.json: \"num_hidden_layers\" should be an integer, but is an array"));
  EXPECT_THAT(error_with("llama-untied", "\"intermediate_size\": 160", "\"intermediate_size\": [160]"),
              HasSubstr("intermediate_size has 1 numbers for 2 layers"));
  EXPECT_THAT(error_with("llama-untied", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1000000000"),
              HasSubstr("num_hidden_layers is 1000000000"));
  EXPECT_THAT(error_with("llama-untied", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 900"),
              HasSubstr("900 layers, but only"));
  EXPECT_THAT(error_with("llama-untied", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3"),
              HasSubstr("no multiple of 3"));
  EXPECT_THAT(error_with("llama-untied", "\"head_dim\": 16", "\"head_dim\": 15"), HasSubstr("is odd"));
  EXPECT_THAT(error_with("llama-untied", "\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": -1"),
              HasSubstr("epsilon"));
  EXPECT_THAT(error_with("llama-untied", "\"rope_theta\": 10000.0", "\"rope_theta\": -5"),
              HasSubstr("rope_theta"));
  const auto eos = [](const std::string& value) {
    return error_with("llama-untied", "\"eos_token_id\": 477", "\"eos_token_id\": " + value);
  };
  EXPECT_THAT(eos("480"), testing::AllOf(HasSubstr("config.json"),
                                         HasSubstr("eos_token_id 480 is outside the vocabulary of 480")));
  EXPECT_THAT(eos("[477, 4294967296]"), HasSubstr("eos_token_id 4294967296 is outside"));
  EXPECT_THAT(eos("-2"), HasSubstr("eos_token_id -2 is outside"));
  EXPECT_THAT(eos("\"</s>\""), HasSubstr("\"eos_token_id\" should be"));
  for (const char* fine : {"479", "[0, 477]", "null", "-1", "[]"})
    EXPECT_EQ(eos(fine), "ok") << fine;
  EXPECT_THAT(error_with("llama-untied", "\"bos_token_id\": 473", "\"bos_token_id\": 1000"),
              HasSubstr("bos_token_id 1000"));
  EXPECT_THAT(error_with("smollm3-nope", "\"no_rope_layers\": [\n  1,", "\"no_rope_layers\": ["),
              HasSubstr("no_rope_layers has 4"));
}

TEST(ModelRefusal, errors_name_the_folder_once_and_say_what_helps) {
  const TemporaryFolder folder;
  const std::string source = kOracles + "/models/llama-untied";
  fs::copy(source + "/model.safetensors", folder.path("model.safetensors"));
  write_file(folder.path("config.json"), R"({"model_type": "llama", "num_hidden_layers": "x"})");
  EXPECT_EQ(
      error_of(folder.path()),
      folder.path() +
          ": config.json: \"num_hidden_layers\" should be an integer, but is a string; correct the file, "
          "or fetch or convert the model again");
  write_file(folder.path("config.json"), "{");
  EXPECT_THAT(error_of(folder.path()),
              testing::AllOf(testing::StartsWith(folder.path() + ": config.json: JSON"),
                             HasSubstr("; check --model, fetch the file again")));
  write_file(folder.path("m.gguf"), "GGML");
  EXPECT_THAT(error_of(folder.path("m.gguf")), HasSubstr("; check --model"));
}

TEST(ModelAudit, tensors_and_configuration_must_agree) {
  // The configuration wants what the file lacks, or other shapes.
  EXPECT_THAT(error_with("llama-untied", "\"attention_bias\": false", "\"attention_bias\": true"),
              HasSubstr("tensor \"model.layers.0.self_attn.q_proj.bias\" is missing"));
  EXPECT_THAT(error_with("llama-untied", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"),
              HasSubstr("\"model.layers.2.input_layernorm.weight\" is missing"));
  EXPECT_THAT(error_with("llama-untied", "\"intermediate_size\": 160", "\"intermediate_size\": 161"),
              HasSubstr("is [160, 64], but the configuration wants [161, 64]"));
  EXPECT_THAT(error_with("llama-yarn", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false"),
              HasSubstr("\"lm_head.weight\" is missing"));
  // The file has more than the configuration wants.
  EXPECT_THAT(error_with("llama-untied", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1"),
              testing::AllOf(HasSubstr("model.layers.1."), HasSubstr("has no place")));
  EXPECT_THAT(error_with("qwen3-qknorm", "\"model_type\": \"qwen3\"", "\"model_type\": \"llama\""),
              HasSubstr("_norm.weight\" has no place"));
  // A head that a tied configuration makes redundant may stay in the file.
  EXPECT_EQ(error_with("llama-untied", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true"),
            "ok");
}

// A one-layer llama as GGUF, F32 zeros.
GgufWriter tiny_llama(const std::function<void(GgufWriter&)>& keys = {}, const std::string& skip = "",
                      const std::string& prefix = "llama") {
  GgufWriter w;
  w.string("general.architecture", prefix);
  if (keys) keys(w);
  for (const auto& [name, value] : {std::pair{"block_count", 1u},
                                    {"embedding_length", 8u},
                                    {"feed_forward_length", 12u},
                                    {"context_length", 64u},
                                    {"attention.head_count", 2u},
                                    {"attention.head_count_kv", 1u}})
    if (skip != name) w.u32(prefix + "." + name, value);
  w.f32(prefix + ".attention.layer_norm_rms_epsilon", 1e-5f);
  const auto add = [&](const std::string& name, std::vector<uint64_t> dims) {
    if (skip == name) return;
    uint64_t n = 4;
    for (const uint64_t d : dims)
      n *= d;
    w.tensor(name, dims, 0, Bytes().fill(n, 0));
  };
  add("token_embd.weight", {8, 10});
  add("output_norm.weight", {8});
  for (const char* name : {"attn_norm", "ffn_norm"})
    add(fmt::format("blk.0.{}.weight", name), {8});
  add("blk.0.attn_q.weight", {8, 8});
  add("blk.0.attn_k.weight", {8, 4});
  add("blk.0.attn_v.weight", {8, 4});
  add("blk.0.attn_output.weight", {8, 8});
  add("blk.0.ffn_gate.weight", {8, 12});
  add("blk.0.ffn_up.weight", {8, 12});
  add("blk.0.ffn_down.weight", {12, 8});
  return w;
}

std::string gguf_error(const GgufWriter& w) {
  const TemporaryFolder folder;
  write_file(folder.path("m.gguf"), w.build());
  return error_of(folder.path("m.gguf"));
}

TEST(ModelRefusal, gguf_keys_that_change_the_mathematics_are_refused_by_name) {
  EXPECT_EQ(gguf_error(tiny_llama()), "ok");
  const auto with_u32 = [](const std::string& key, uint32_t v) {
    return gguf_error(tiny_llama([&](GgufWriter& w) { w.u32("llama." + key, v); }));
  };
  const auto with_f32 = [](const std::string& key, float v) {
    return gguf_error(tiny_llama([&](GgufWriter& w) { w.f32("llama." + key, v); }));
  };
  for (const char* key : {"expert_used_count", "attention.sliding_window", "nextn_predict_layers"}) {
    EXPECT_THAT(with_u32(key, 4), HasSubstr(fmt::format("llama.{} = 4", key)));
    EXPECT_EQ(with_u32(key, 0), "ok") << key;
  }
  EXPECT_THAT(with_u32("expert_count", 4), HasSubstr("llama.expert_used_count is missing"));
  EXPECT_EQ(with_u32("expert_count", 0), "ok");
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping", "attention.clamp_kqv",
                          "attention.scale", "logit_scale", "residual_scale", "embedding_scale"})
    EXPECT_THAT(with_f32(key, 2.5f), HasSubstr(fmt::format("llama.{} = 2.5", key)));
  EXPECT_EQ(with_f32("logit_scale", 1), "ok");
  EXPECT_THAT(with_u32("rope.dimension_count", 2), HasSubstr("rope.dimension_count = 2"));
  EXPECT_THAT(with_u32("attention.value_length", 6), HasSubstr("attention.value_length = 6"));
  EXPECT_THAT(with_u32("vocab_size", 11), HasSubstr("token_embd.weight has 10 rows"));
  EXPECT_THAT(gguf_error(tiny_llama([](GgufWriter& w) { w.string("general.type", "adapter"); })),
              HasSubstr("\"adapter\""));
  EXPECT_THAT(
      gguf_error(tiny_llama([](GgufWriter& w) { w.key("split.count", 2, Bytes().put<uint16_t>(3)); })),
      HasSubstr("split over 3 files"));
  EXPECT_THAT(gguf_error(tiny_llama([](GgufWriter& w) { w.boolean("llama.attention.causal", false); })),
              HasSubstr("attention.causal"));
}

TEST(Model, a_window_of_a_gguf_file_needs_a_list_of_layers) {
  const auto windows = [](const std::string& arch, const std::vector<bool>& list) {
    const TemporaryFolder folder;
    GgufWriter w = tiny_llama(
        [&](GgufWriter& keys) {
          keys.u32(arch + ".attention.sliding_window", 5);
          Bytes values;
          values.put<uint32_t>(7).put<uint64_t>(list.size());
          for (const bool on : list)
            values.put<uint8_t>(on);
          if (!list.empty()) keys.key(arch + ".attention.sliding_window_pattern", 9, values);
        },
        "", arch);
    if (arch == "qwen2")
      for (const auto& [name, n] : {std::pair{"q", 8u}, {"k", 4u}, {"v", 4u}})
        w.tensor(fmt::format("blk.0.attn_{}.bias", name), {n}, 0, Bytes().fill(n * 4, 0));
    write_file(folder.path("m.gguf"), w.build());
    const auto model = load(folder.path("m.gguf"));
    return model.ok() ? fmt::format("{}", (*model)->graph().kv_groups[0].window) : model.status().message();
  };
  EXPECT_EQ(windows("qwen2", {true}), "5");
  EXPECT_EQ(windows("qwen2", {false}), "0");
  EXPECT_THAT(windows("qwen2", {}), HasSubstr("without a list of layers"));
  EXPECT_THAT(windows("qwen2", {true, false}), HasSubstr("has 2 elements for 1 layers"));
  EXPECT_THAT(windows("llama", {true}), HasSubstr("llama.attention.sliding_window = 5"));
}

TEST(ModelRefusal, missing_gguf_parts_are_named) {
  EXPECT_THAT(gguf_error(tiny_llama({}, "block_count")), HasSubstr("llama.block_count is missing"));
  EXPECT_THAT(gguf_error(tiny_llama({}, "attention.head_count_kv")),  // as many as heads, then
              HasSubstr("is [4, 8], but the configuration wants [8, 8]"));
  EXPECT_THAT(gguf_error(tiny_llama({}, "token_embd.weight")), HasSubstr("token_embd.weight is missing"));
  EXPECT_THAT(gguf_error(tiny_llama({}, "blk.0.attn_k.weight")),
              HasSubstr("self_attn.k_proj.weight\" is missing"));
  GgufWriter extra = tiny_llama();
  extra.tensor("blk.0.ffn_gate_inp.weight", {8, 4}, 0, Bytes().fill(128, 0));
  EXPECT_THAT(gguf_error(extra), HasSubstr("\"blk.0.ffn_gate_inp.weight\" has no place"));
  GgufWriter half_bias = tiny_llama();
  half_bias.tensor("blk.0.attn_v.bias", {4}, 0, Bytes().fill(16, 0));
  EXPECT_THAT(gguf_error(half_bias), HasSubstr("\"blk.0.attn_v.bias\" has no place"));
}

std::vector<float> gguf_frequencies(const std::function<void(GgufWriter&)>& keys,
                                    const std::vector<float>& divisors = {}) {
  const TemporaryFolder folder;
  GgufWriter w = tiny_llama(keys);
  if (!divisors.empty()) {
    Bytes data;
    for (const float d : divisors)
      data.put(d);
    w.tensor("rope_freqs.weight", {divisors.size()}, 0, data);
  }
  write_file(folder.path("m.gguf"), w.build());
  const auto model = load(folder.path("m.gguf"));
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? (*model)->graph().ropes[0].inv_freq : std::vector<float>();
}

TEST(ModelAudit, factors_that_nobody_read_have_no_place) {
  for (const char* name :
       {"rope_factors_long.weight", "rope_factors_short.weight", "rope_factors_other.weight"}) {
    GgufWriter w = tiny_llama();
    w.tensor(name, {2}, 0, Bytes().fill(8, 0x3F));
    EXPECT_THAT(gguf_error(w), testing::AllOf(HasSubstr(name), HasSubstr("has no place"))) << name;
  }
}

TEST(GgufRope, scaling_metadata_is_honoured_or_refused) {
  const auto plain = gguf_frequencies({});
  ASSERT_EQ(plain.size(), 2u);
  EXPECT_EQ(plain[0], 1.0f);
  const auto halves = std::vector<float>{plain[0] / 2, plain[1] / 2};
  EXPECT_EQ(gguf_frequencies([](auto& w) {
              w.string("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 2);
            }),
            halves);
  EXPECT_EQ(gguf_frequencies([](auto& w) { w.f32("llama.rope.scaling.factor", 2); }), halves);
  EXPECT_EQ(gguf_frequencies([](auto& w) { w.f32("llama.rope.scale_linear", 2); }), halves);
  EXPECT_EQ(gguf_frequencies([](auto& w) { w.string("llama.rope.scaling.type", "none"); }), plain);
  EXPECT_EQ(gguf_frequencies({}, {1, 4}), (std::vector<float>{plain[0], plain[1] / 4}));
  const auto yarn = [](GgufWriter& w) {
    w.string("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", 4);
    w.u32("llama.rope.scaling.original_context_length", 16);
  };
  EXPECT_NE(gguf_frequencies(yarn), plain);
  for (const char* key : {"attn_factor", "yarn_attn_factor", "yarn_ext_factor"})
    EXPECT_THAT(gguf_error(tiny_llama([&](GgufWriter& w) {
                  yarn(w);
                  w.f32(std::string("llama.rope.scaling.") + key, 0.5f);
                })),
                HasSubstr(key));
  EXPECT_THAT(gguf_error(tiny_llama([](GgufWriter& w) { w.string("llama.rope.scaling.type", "longrope"); })),
              HasSubstr("\"longrope\""));
}

}  // namespace
}  // namespace invar
