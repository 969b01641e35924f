// Whole models against outside references (test/data/oracles): float64 goldens for float weights, and for
// quantized weights the distance that llama.cpp has on the same file. A family or a type is one row of a
// table.

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "golden.h"
#include "made_models.h"
#include "model_runner.h"
#include "models/family.h"
#include "oracle_models.h"
#include "reference_model.h"

namespace invar {
namespace {

struct Row {
  const char* model;   // file or folder below oracles/
  const char* golden;  // stem of the golden pair
};

std::string row_name(const testing::TestParamInfo<Row>& info) {
  return oracle_test_name(info.param.model);
}

double kl(std::span<const double> p_logits, std::span<const double> q_logits) {
  const auto log_sum = [](std::span<const double> x) {
    const double top = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const double v : x)
      sum += std::exp(v - top);
    return top + std::log(sum);
  };
  const double lp = log_sum(p_logits), lq = log_sum(q_logits);
  double total = 0;
  for (size_t i = 0; i < p_logits.size(); ++i)
    total += std::exp(p_logits[i] - lp) * ((p_logits[i] - lp) - (q_logits[i] - lq));
  return total;
}

// The greedy run equals the stored one up to the first step whose margin is within the tolerance: beyond it
// two right engines may part. A longrope reference takes the other list where the sequence crosses
// short_context, which an engine with a cache does not: the comparison ends there.
void expect_greedy(ModelRunner& runner, const GoldenSequence& s, double tolerance,
                   int32_t short_context = 0) {
  if (s.greedy.empty()) return;
  std::vector<int32_t> got = runner.greedy(s.ids, int32_t(s.greedy.size()));
  ASSERT_EQ(got.size(), s.greedy.size());
  const int32_t prompt = int32_t(s.ids.size());
  if (prompt <= short_context && prompt + int32_t(got.size()) > short_context)
    got.resize(size_t(short_context - prompt + 1));
  for (size_t i = 0; i < got.size() && s.greedy_margin[i] > tolerance; ++i)
    ASSERT_EQ(got[i], s.greedy[i]) << "greedy step " << i << ", margin " << s.greedy_margin[i];
}

// ---- float weights

class FloatOracle : public testing::TestWithParam<OracleModel> {};

TEST_P(FloatOracle, logits_are_within_ten_times_a_float32_engine_and_greedy_tokens_agree) {
  const OracleModel& row = GetParam();
  const auto model = ModelRunner::load(model_path(row.path));
  EXPECT_EQ(model->info().family, row.family);
  ModelRunner runner(model, {});
  const size_t vocab = size_t(runner.vocab());
  double worst_ratio = 0;
  for (const GoldenSequence& s : read_golden(oracle_path(row.golden))) {
    ASSERT_EQ(s.logits.size(), s.positions.size() * vocab);
    ASSERT_GT(s.float32_max_abs, 0);
    const std::vector<float> got = runner.logits(s.ids);
    double worst = 0;
    for (size_t p = 0; p < s.positions.size(); ++p) {
      for (size_t i = 0; i < vocab; ++i)
        worst = std::max(worst,
                         std::abs(double(got[size_t(s.positions[p]) * vocab + i]) - s.logits[p * vocab + i]));
    }
    worst_ratio = std::max(worst_ratio, worst / s.float32_max_abs);
    EXPECT_LE(worst, 10 * s.float32_max_abs) << s.ids.size() << " tokens";
    expect_greedy(runner, s, 10 * s.float32_max_abs, model->graph().ropes[0].short_context);
  }
  RecordProperty("worst_ratio_to_float32_column", std::to_string(worst_ratio));
}

INSTANTIATE_TEST_SUITE_P(Models, FloatOracle, testing::ValuesIn(kOracleModels),
                         [](const auto& info) { return oracle_test_name(info.param.path); });

TEST(Oracles, files_of_other_converters_give_the_bits_of_what_they_were_made_of) {
  const std::pair<const char*, const char*> kPairs[] = {
      {"made/gemma3n-text.gguf", "models/gemma3n-text"},
      {"made/mixtral-separate.gguf", "gguf/lossless/mixtral.gguf"},
  };
  std::vector<int32_t> ids(40);
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>(7 + i * 11 % 440);
  for (const auto& [made, source] : kPairs) {
    ModelRunner a(ModelRunner::load(model_path(made)), {}), b(ModelRunner::load(model_path(source)), {});
    const std::vector<float> x = a.logits(ids), y = b.logits(ids);
    ASSERT_EQ(x.size(), y.size());
    EXPECT_EQ(std::memcmp(x.data(), y.data(), x.size() * sizeof(float)), 0) << made;
  }
}

TEST(Oracles, every_family_has_one) {
  std::set<std::string> tested;
  for (const OracleModel& model : kOracleModels)
    tested.insert(model.family);
  for (const Family& family : families())
    EXPECT_TRUE(tested.contains(family.name)) << family.name;
}

// ---- quantized weights

constexpr Row kQuantized[] = {
    {"gguf/quant/llama-q256-F16.gguf", "gguf/quant/llama-q256-F16.golden"},
    {"gguf/quant/llama-q256-BF16.gguf", "gguf/quant/llama-q256-BF16.golden"},
    {"gguf/quant/llama-q256-Q4_0.gguf", "gguf/quant/llama-q256-Q4_0.golden"},
    {"gguf/quant/llama-q256-Q4_1.gguf", "gguf/quant/llama-q256-Q4_1.golden"},
    {"gguf/quant/llama-q256-Q5_0.gguf", "gguf/quant/llama-q256-Q5_0.golden"},
    {"gguf/quant/llama-q256-Q5_1.gguf", "gguf/quant/llama-q256-Q5_1.golden"},
    {"gguf/quant/llama-q256-Q8_0.gguf", "gguf/quant/llama-q256-Q8_0.golden"},
    {"gguf/quant/llama-q256-Q2_K.gguf", "gguf/quant/llama-q256-Q2_K.golden"},
    {"gguf/quant/llama-q256-Q3_K.gguf", "gguf/quant/llama-q256-Q3_K.golden"},
    {"gguf/quant/llama-q256-Q4_K.gguf", "gguf/quant/llama-q256-Q4_K.golden"},
    {"gguf/quant/llama-q256-Q5_K.gguf", "gguf/quant/llama-q256-Q5_K.golden"},
    {"gguf/quant/llama-q256-Q6_K.gguf", "gguf/quant/llama-q256-Q6_K.golden"},
    {"gguf/quant/llama-q256-Q4_K_M-mix.gguf", "gguf/quant/llama-q256-Q4_K_M-mix.golden"},
    {"gguf/quant/llama-q256-MXFP4.gguf", "gguf/quant/llama-q256-MXFP4.golden"},
    {"gguf/quant/llama-q256-IQ4_NL.gguf", "gguf/quant/llama-q256-IQ4_NL.golden"},
    {"gguf/quant/llama-q256-IQ4_XS.gguf", "gguf/quant/llama-q256-IQ4_XS.golden"},
    {"gguf/quant/llama-q256-IQ2_XXS.gguf", "gguf/quant/llama-q256-IQ2_XXS.golden"},
    {"gguf/quant/llama-q256-IQ2_XS.gguf", "gguf/quant/llama-q256-IQ2_XS.golden"},
    {"gguf/quant/llama-q256-IQ2_S.gguf", "gguf/quant/llama-q256-IQ2_S.golden"},
    {"gguf/quant/llama-q256-IQ3_XXS.gguf", "gguf/quant/llama-q256-IQ3_XXS.golden"},
    {"gguf/quant/llama-q256-IQ3_S.gguf", "gguf/quant/llama-q256-IQ3_S.golden"},
    {"gguf/quant/llama-q256-TQ2_0.gguf", "gguf/quant/llama-q256-TQ2_0.golden"},
    {"gguf/quant/qwen3-q256-Q4_K.gguf", "gguf/quant/qwen3-q256-Q4_K.golden"},
    {"gguf/quant/gemma3-q256-Q4_0.gguf", "gguf/quant/gemma3-q256-Q4_0.golden"},
    {"mlx/llama-q256-q2g64", "mlx/llama-q256-q2g64.golden"},
    {"mlx/llama-q256-q4g32", "mlx/llama-q256-q4g32.golden"},
    {"mlx/llama-q256-mixed", "mlx/llama-q256-mixed.golden"},
    {"mlx/llama-q256-mxfp4", "mlx/llama-q256-mxfp4.golden"},
    {"mlx/llama-q256-nvfp4", "mlx/llama-q256-nvfp4.golden"},
    {"mlx/llama-q256-mxfp8", "mlx/llama-q256-mxfp8.golden"},
    {"mlx/qwen3-q256-q4g64", "mlx/qwen3-q256-q4g64.golden"},
    {"quantized/llama-gptq", "quantized/llama-gptq/golden"},
    {"quantized/llama-gptq-sym", "quantized/llama-gptq-sym/golden"},
    {"quantized/llama-awq", "quantized/llama-awq/golden"},
    {"quantized/llama-fp8", "quantized/llama-fp8/golden"},
    {"quantized/llama-fp8-rows", "quantized/llama-fp8-rows/golden"},
    {"quantized/llama-nvfp4", "quantized/llama-nvfp4/golden"},
    {"quantized/llama-nvfp4.gguf", "quantized/llama-nvfp4/golden"},
};

// The test's own float64 pass against the stored goldens, which were rounded to float32.
constexpr double kReferenceTolerance = 5e-6;
// The worst position is as much luck as skill: below this it says nothing.
constexpr double kWorstKlFloor = 2.5e-3;

class QuantizedOracle : public testing::TestWithParam<Row> {};

TEST_P(QuantizedOracle, is_as_close_to_float64_as_its_peer) {
  const Row& row = GetParam();
  const auto model = ModelRunner::load(oracle_path(row.model));
  const ReferenceModel reference(model->source());
  ModelRunner runner(model, {});
  const size_t vocab = size_t(runner.vocab());

  double total = 0, worst = 0, peer = 0;
  size_t positions = 0;
  for (const GoldenSequence& s : read_golden(oracle_path(row.golden))) {
    peer = std::max(peer, s.peer_max_kl > 0 ? s.peer_max_kl : kWorstKlFloor);  // none: float activations
    const std::vector<double> exact = reference.logits(s.ids);
    ASSERT_EQ(exact.size(), s.ids.size() * vocab);
    for (size_t p = 0; p < s.positions.size(); ++p) {
      for (size_t i = 0; i < vocab; ++i)
        ASSERT_NEAR(exact[size_t(s.positions[p]) * vocab + i], s.logits[p * vocab + i], kReferenceTolerance)
            << "the test's reference is wrong at position " << s.positions[p];
    }
    const std::vector<float> single = runner.logits(s.ids);
    const std::vector<double> got(single.begin(), single.end());
    for (size_t p = 0; p < s.ids.size(); ++p) {
      const double d =
          kl(std::span(exact).subspan(p * vocab, vocab), std::span(got).subspan(p * vocab, vocab));
      total += d, ++positions;
      worst = std::max(worst, d);
    }
    expect_greedy(runner, s, s.peer_max_abs);
  }
  EXPECT_LE(total / double(positions), peer);
  EXPECT_LE(worst, std::max(1.5 * peer, kWorstKlFloor));
  RecordProperty("mean_kl", std::to_string(total / double(positions)));
  RecordProperty("worst_kl", std::to_string(worst));
  RecordProperty("peer_worst_kl", std::to_string(peer));
}

INSTANTIATE_TEST_SUITE_P(Models, QuantizedOracle, testing::ValuesIn(kQuantized), row_name);

// ---- quantized experts

constexpr Row kQuantizedExperts[] = {
    {"models/gpt-oss-mxfp4", "models/gpt-oss-mxfp4/golden"},
    {"mlx/qwen3-moe-q4g32", "mlx/qwen3-moe-q4g32.golden"},
};

class QuantizedExperts : public testing::TestWithParam<Row> {};

// A rounded activation may flip an expert near a tie, and that token's logits are then anything: the mean
// over all positions counts, the worst one against that of an engine whose activations are bfloat16.
TEST_P(QuantizedExperts, keep_the_distribution) {
  const Row& row = GetParam();
  ModelRunner runner(ModelRunner::load(oracle_path(row.model)), {});
  const size_t vocab = size_t(runner.vocab());
  double total = 0, worst = 0, peer = 0;
  size_t positions = 0;
  for (const GoldenSequence& s : read_golden(oracle_path(row.golden))) {
    ASSERT_GT(s.bfloat16_max_kl + s.peer_max_kl, 0);
    peer = std::max({peer, s.bfloat16_max_kl, s.peer_max_kl});
    const std::vector<float> got = runner.logits(s.ids);
    for (size_t p = 0; p < s.positions.size(); ++p) {
      const auto exact = std::span(s.logits).subspan(p * vocab, vocab);
      const auto mine = std::span(got).subspan(size_t(s.positions[p]) * vocab, vocab);
      const double d =
          kl(std::vector<double>(exact.begin(), exact.end()), std::vector<double>(mine.begin(), mine.end()));
      total += d, ++positions;
      worst = std::max(worst, d);
    }
  }
  EXPECT_LE(total / double(positions), peer / 10);
  EXPECT_LE(worst, peer);
  RecordProperty("mean_kl", std::to_string(total / double(positions)));
  RecordProperty("worst_kl", std::to_string(worst));
  RecordProperty("bfloat16_worst_kl", std::to_string(peer));
}

INSTANTIATE_TEST_SUITE_P(Models, QuantizedExperts, testing::ValuesIn(kQuantizedExperts), row_name);

}  // namespace
}  // namespace invar
