#include "models/experts_config.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "format/test_files.h"
#include "models/model.h"

namespace invar {
namespace {

using ::testing::HasSubstr;

const std::string kOracles = INVAR_TEST_DATA "/oracles";

Result<std::shared_ptr<const Model>> load(const std::string& path) {
  return Model::load(path, {.threads = 2, .progress = false});
}

// What loading an oracle says after one text of its config.json is replaced.
std::string error_with(const std::string& oracle, const std::string& from, const std::string& to) {
  const TemporaryFolder folder;
  const std::string source = kOracles + "/models/" + oracle;
  std::filesystem::copy(source + "/model.safetensors", folder.path("model.safetensors"));
  const auto bytes = read_file(source + "/config.json");
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t at = text.find(from);
  if (at == std::string::npos) return "test is broken: no " + from;
  write_file(folder.path("config.json"), text.replace(at, from.size(), to));
  const auto model = load(folder.path());
  return model.ok() ? "ok" : model.status().message();
}

TEST(ExpertsConfig, configurations_that_do_not_fit_are_refused_by_key) {
  const auto qwen3 = [](const char* from, const char* to) { return error_with("qwen3-moe", from, to); };
  EXPECT_EQ(qwen3("\"num_experts\": 8", "\"num_experts\": 8"), "ok");
  EXPECT_THAT(qwen3("\"num_experts\": 8", "\"other\": 8"), HasSubstr("num_experts is missing"));
  EXPECT_THAT(qwen3("\"num_experts\": 8", "\"num_experts\": 1000000"),
              HasSubstr("num_experts is 1000000, not between 1 and 1024"));
  EXPECT_THAT(qwen3("\"num_experts\": 8", "\"num_experts\": 1000"), HasSubstr("but only"));
  EXPECT_THAT(qwen3("\"num_experts\": 8", "\"num_experts\": 9"),
              HasSubstr("[8, 64], but the configuration wants [9"));
  EXPECT_THAT(qwen3("\"num_experts\": 8", "\"num_experts\": 7"),
              HasSubstr("[8, 64], but the configuration wants"));
  EXPECT_THAT(qwen3("\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": 9"),
              HasSubstr("num_experts_per_tok is 9, not between 1 and 8"));
  EXPECT_THAT(qwen3("\"mlp_only_layers\": [", "\"mlp_only_layers\": [1, "), HasSubstr("layers.1.mlp"));
  EXPECT_THAT(qwen3("\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\""), HasSubstr("\"gelu\""));
  EXPECT_THAT(error_with("glm4-moe", "\"n_group\": 1", "\"n_group\": 2"), HasSubstr("n_group = 2"));
  EXPECT_THAT(error_with("gpt-oss-yarn-rounded", "\"num_local_experts\": 6", "\"num_local_experts\": 5"),
              HasSubstr("but the configuration wants [5"));
}

TEST(ExpertsConfig, both_files_of_a_model_record_the_same_routing) {
  const std::pair<const char*, const char*> kPairs[] = {
      {"models/qwen3-moe", "gguf/lossless/qwen3-moe.gguf"},
      {"models/qwen2-moe-shared", "gguf/lossless/qwen2-moe-shared.gguf"},
      {"models/glm4-moe", "gguf/lossless/glm4-moe.gguf"},
      {"models/mixtral", "gguf/lossless/mixtral.gguf"},
      {"models/gpt-oss-yarn-rounded", "gguf/lossless/gpt-oss-yarn-rounded.gguf"},
  };
  for (const auto& [folder, file] : kPairs) {
    const auto a = load(kOracles + "/" + folder), b = load(kOracles + "/" + file);
    ASSERT_TRUE(a.ok() && b.ok()) << a.status().message() << b.status().message();
    const Graph &x = (*a)->graph(), &y = (*b)->graph();
    ASSERT_EQ(x.nodes.size(), y.nodes.size()) << file;
    EXPECT_EQ((*a)->info().parameters, (*b)->info().parameters) << file;
    int layers = 0;
    for (size_t i = 0; i < x.nodes.size(); ++i) {
      EXPECT_EQ(x.nodes[i].site, y.nodes[i].site);
      const auto *p = std::get_if<ExpertsAttr>(&x.nodes[i].attr),
                 *q = std::get_if<ExpertsAttr>(&y.nodes[i].attr);
      ASSERT_EQ(p == nullptr, q == nullptr);
      if (p == nullptr) continue;
      ++layers;
      EXPECT_EQ(std::tie(p->chosen, p->routing, p->renormalize, p->sum_floor, p->scale, p->unit, p->alpha,
                         p->limit),
                std::tie(q->chosen, q->routing, q->renormalize, q->sum_floor, q->scale, q->unit, q->alpha,
                         q->limit));
    }
    EXPECT_GT(layers, 0);
  }
}

}  // namespace
}  // namespace invar
