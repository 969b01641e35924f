#include "backends/cpu/plan.h"

#include <gtest/gtest.h>

#include "backends/cpu/testing/random_model.h"

namespace invar {
namespace {

constexpr ExecutableLimits kLimits{.max_tokens = 16, .max_logit_rows = 4};

struct Counts {
  int rows = 0, linear = 0, attend = 0;
};

Counts count_phases(const StepPlan& plan) {
  Counts counts;
  for (const Phase& phase : plan.phases) {
    counts.rows += std::holds_alternative<RowPhase>(phase);
    counts.linear += std::holds_alternative<LinearPhase>(phase);
    counts.attend += std::holds_alternative<AttendPhase>(phase);
  }
  return counts;
}

// A model of the llama kind with every matrix quantized.
test::Model llama_like(int layers) {
  test::Rng rng(1);
  const test::Shape shape{.layers = layers,
                          .hidden = 64,
                          .heads = 4,
                          .kv_heads = 2,
                          .head_dim = 16,
                          .rope_dim = 16,
                          .ffn = 96,
                          .vocab = 40,
                          .tied = true,
                          .biases = true,
                          .qk_norm = true};
  test::Model model = test::make_model(shape, rng, &kv_codecs()[0]);
  for (PackedMatrix& m : model.weights.matrices) {
    if (m.data == nullptr) continue;
    m.form = find_packed_form("u4z8");
    m.data = model.bytes.emplace_back(m.bytes()).data();
  }
  return model;
}

TEST(StepPlan, runs_a_layer_in_four_linear_phases_and_one_attention) {
  for (int layers : {1, 3}) {
    const test::Model model = llama_like(layers);
    const Counts counts = count_phases(make_step_plan(model.graph, model.weights, kLimits).value());
    EXPECT_EQ(counts.linear, 4 * layers + 1);
    EXPECT_EQ(counts.attend, layers);
    EXPECT_EQ(counts.rows,
              5 * layers + 2);  // norm, rope and append, three quantizations; at the end norm, select
  }
}

TEST(StepPlan, adds_residuals_in_place_and_gates_in_the_linear_phase) {
  const test::Model model = llama_like(2);
  const StepPlan plan = make_step_plan(model.graph, model.weights, kLimits).value();
  std::vector<size_t> residuals;
  int gated = 0, parts = 0, local = 0;
  for (const Phase& phase : plan.phases) {
    const auto* linear = std::get_if<LinearPhase>(&phase);
    if (linear == nullptr) continue;
    local += linear->x.place == RowsRef::Place::kWorker;
    for (const LinearPart& part : linear->parts) {
      parts++;
      gated += part.up != nullptr;
      if (part.add_to_out) residuals.push_back(part.out.offset);
    }
  }
  EXPECT_EQ(parts, 2 * (3 + 1 + 1 + 1) + 1);
  EXPECT_EQ(gated, 2);
  EXPECT_EQ(local, 2 * 2 + 1);  // normed rows, which only the quantization reads, never leave their worker
  ASSERT_EQ(residuals.size(), 4u);
  for (size_t offset : residuals)
    EXPECT_EQ(offset, residuals[0]);
}

TEST(StepPlan, keeps_a_residual_that_is_read_again) {
  GraphBuilder b;
  const WeightId table = b.matrix("embed", 10, 32);
  const ValueId x = b.embed("embed", table);
  const ValueId y = b.add("add", x, b.linear("linear", x, b.matrix("w", 32, 32)));
  const ValueId z = b.add("again", y, x);
  const ValueId logits = b.linear("head", b.select_logit_rows("select", z), table);
  test::Model model;
  model.graph = std::move(b).finish(logits, 10).value();
  test::Rng rng(1);
  test::make_weights(rng, model);
  const StepPlan plan = make_step_plan(model.graph, model.weights, kLimits).value();
  for (const Phase& phase : plan.phases) {
    const auto* linear = std::get_if<LinearPhase>(&phase);
    if (linear == nullptr) continue;
    for (const LinearPart& part : linear->parts)
      EXPECT_FALSE(part.add_to_out);
  }
}

TEST(StepPlan, memory_does_not_grow_with_layers) {
  const test::Model two = llama_like(2), eight = llama_like(8);
  EXPECT_EQ(make_step_plan(two.graph, two.weights, kLimits).value().scratch_bytes,
            make_step_plan(eight.graph, eight.weights, kLimits).value().scratch_bytes);
}

TEST(StepPlan, logits_are_dense) {
  const test::Model model = llama_like(1);
  EXPECT_EQ(make_step_plan(model.graph, model.weights, kLimits).value().logits.stride, 40 * sizeof(float));
}

}  // namespace
}  // namespace invar
