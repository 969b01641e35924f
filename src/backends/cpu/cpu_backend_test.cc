#include <gmock/gmock.h>

#include "backends/cpu/testing/random_model.h"
#include "kernels/kernel_table.h"

namespace invar {
namespace {

using ::testing::HasSubstr;

TEST(CpuBackend, is_named_after_its_instruction_set_and_threads) {
  EXPECT_EQ(make_cpu_backend({.threads = 3, .isa = "scalar-portable"}).value()->name(),
            "cpu/scalar-portable, 3 threads");
  EXPECT_EQ(make_cpu_backend({.threads = 1, .isa = "scalar-portable"}).value()->name(),
            "cpu/scalar-portable, 1 thread");
}

TEST(CpuBackend, refuses_an_unknown_instruction_set_and_lists_those_it_has) {
  const auto result = make_cpu_backend({.threads = 1, .isa = "avx9"});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(result.status().message(), HasSubstr("'avx9'"));
  for (const KernelTable* table : kernel_tables())
    EXPECT_THAT(result.status().message(), HasSubstr(table->name));
}

TEST(CpuBackend, refuses_an_instruction_set_that_this_cpu_lacks) {
  for (const KernelTable* table : kernel_tables()) {
    if (cpu_supports(*table) || choose_kernels(table->name) != nullptr) continue;
    const auto result = make_cpu_backend({.threads = 1, .isa = table->name});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), Code::kUnsupported);
    EXPECT_THAT(result.status().message(), HasSubstr("this CPU does not have it"));
  }
}

TEST(CpuBackend, refuses_impossible_thread_counts) {
  EXPECT_FALSE(make_cpu_backend({.threads = -1}).ok());
  EXPECT_FALSE(make_cpu_backend({.threads = 100000}).ok());
}

TEST(CpuBackend, supports_every_codec_it_has_kernels_for) {
  const auto backend = make_cpu_backend({.threads = 1}).value();
  for (const KvCodec& codec : kv_codecs())
    EXPECT_TRUE(backend->supports(codec)) << codec.name;
  KvCodec unknown = kv_codecs()[0];
  unknown.index = kMaxKvCodecs - 1;
  EXPECT_FALSE(backend->supports(unknown));
}

TEST(CpuBackend, refuses_weights_that_do_not_fit_the_graph_by_name) {
  const auto backend = make_cpu_backend({.threads = 1}).value();
  const auto message_of = [&](const test::Model& model) {
    const auto result = backend->compile(model.graph, model.weights, {.max_tokens = 4, .max_logit_rows = 1});
    return result.ok() ? std::string("accepted") : result.status().message();
  };
  test::Model model = test::random_model(1);
  EXPECT_EQ(message_of(model), "accepted");
  const PackedMatrix table = model.weights.matrices[0];

  model.weights.matrices[0].data = nullptr;
  EXPECT_THAT(message_of(model), HasSubstr("'embed' is missing"));
  model.weights.matrices[0] = table;
  model.weights.matrices[0].rows++;
  EXPECT_THAT(message_of(model), HasSubstr("'embed' is ["));
  model.weights.matrices[0] = table;

  for (size_t i = 0; i < model.graph.weights.size(); i++) {
    if (model.graph.weights[i].kind != Weight::Kind::kVector) continue;
    model.weights.vectors[i] = {};
    EXPECT_THAT(message_of(model), HasSubstr("'" + model.graph.weights[i].name + "' has 0 elements"));
    break;
  }
  model.weights.matrices.pop_back();
  EXPECT_THAT(message_of(model), HasSubstr("weight set"));
}

}  // namespace
}  // namespace invar
