// The quality tools and the converter against outside truth: distributions that independent float64
// implementations stored (test/data/oracles), and sums made by hand.

#include <gtest/gtest.h>

#include <cmath>

#include "base/fp_environment.h"
#include "cli/convert/convert.h"
#include "cli/quality/comparison.h"
#include "golden.h"
#include "model_runner.h"

namespace invar {
namespace {

std::unique_ptr<Engine> engine_of(const std::shared_ptr<const Model>& model, const std::string& kv = "f32") {
  auto backend = make_cpu_backend({.threads = 2});
  EngineOptions options;
  options.kv = kv;
  options.prefix_cache_bytes = 0;
  auto engine = Engine::create(model, std::move(*backend), options);
  if (!engine.ok()) throw std::runtime_error(engine.status().message());
  return std::move(*engine);
}

// Computed from the stored pairs by a float64 program of NumPy: over the positions that both store, the mean
// and the largest KL(models/llama-q256 || file), and how many positions agree in the most likely token.
struct Truth {
  const char* file;
  int sequence;
  size_t positions;
  double mean, max;
  int same_top;
};
constexpr Truth kTruth[] = {
    {"Q4_K", 0, 9, 0.08458802350924219, 0.1502346565800587, 8},
    {"Q4_K", 1, 16, 0.10036554040939628, 0.24604046583003233, 13},
    {"Q8_0", 0, 9, 0.0004582145466524089, 0.0008769314374365445, 9},
    {"Q2_K", 1, 16, 1.0530262597992204, 2.112425553721227, 8},
};

struct Pair {
  int32_t position;
  std::vector<float> p, q;
  int32_t next;
};

std::vector<Pair> stored_pairs(const Truth& truth) {
  const GoldenSequence a = read_golden(oracle_path("models/llama-q256/golden"))[size_t(truth.sequence)];
  const GoldenSequence b = read_golden(
      oracle_path(std::string("gguf/quant/llama-q256-") + truth.file + ".golden"))[size_t(truth.sequence)];
  const size_t vocab = a.logits.size() / a.positions.size();
  const auto row = [&](const GoldenSequence& s, size_t i) {
    const auto at = s.logits.begin() + ptrdiff_t(i * vocab);
    return std::vector<float>(at, at + ptrdiff_t(vocab));
  };
  std::vector<Pair> pairs;
  for (size_t i = 0; i < b.positions.size(); ++i) {
    const auto found = std::find(a.positions.begin(), a.positions.end(), b.positions[i]);
    if (found == a.positions.end()) continue;
    const size_t next = size_t(b.positions[i]) + 1;
    pairs.push_back({b.positions[i], row(a, size_t(found - a.positions.begin())), row(b, i),
                     next < b.ids.size() ? b.ids[next] : 0});
  }
  return pairs;
}

TEST(Quality, divergences_of_stored_distributions_are_those_of_an_independent_program) {
  const FpEnvironment contract;
  for (const Truth& truth : kTruth) {
    std::vector<RowDivergence> rows;
    for (const Pair& pair : stored_pairs(truth))
      rows.push_back(*compare_rows(pair.p, pair.q, pair.next));
    ASSERT_EQ(rows.size(), truth.positions) << truth.file;
    const Comparison c = summarize(rows);
    EXPECT_NEAR(c.mean, truth.mean, 1e-12 + 1e-12 * truth.mean) << truth.file;
    EXPECT_NEAR(c.max, truth.max, 1e-12 + 1e-12 * truth.max) << truth.file;
    EXPECT_EQ(c.same_top, truth.same_top) << truth.file;
  }
}

// The same through two engines. Ours round activations of quantized layers, so that single positions move.
TEST(Quality, divergences_of_running_models_are_those_of_the_stored_distributions) {
  for (const Truth& truth : {kTruth[0], kTruth[1], kTruth[3]}) {
    const auto a = engine_of(ModelRunner::load(oracle_path("models/llama-q256")));
    const auto b = engine_of(
        ModelRunner::load(oracle_path(std::string("gguf/quant/llama-q256-") + truth.file + ".gguf")));
    const GoldenSequence s = read_golden(oracle_path("models/llama-q256/golden"))[size_t(truth.sequence)];
    const std::vector<ScoreWindow> whole = score_windows(s.ids, {}, {int32_t(s.ids.size()), 1});
    ASSERT_EQ(whole.size(), 1u);
    int64_t reported = 0;
    const auto rows = compare_windows(*a, *b, whole, {nullptr, [&](int64_t n) { reported += n; }});
    ASSERT_TRUE(rows.ok()) << rows.status().message();
    ASSERT_EQ(rows->size(), s.ids.size() - 1);
    EXPECT_EQ(reported, int64_t(rows->size()));
    double total = 0;
    size_t n = 0;
    for (const Pair& pair : stored_pairs(truth)) {
      if (size_t(pair.position) >= rows->size()) continue;
      total += (*rows)[size_t(pair.position)].kl - compare_rows(pair.p, pair.q, pair.next)->kl;
      ++n;
    }
    EXPECT_GE(n + 1, truth.positions);
    EXPECT_LT(std::abs(total / double(n)), 0.1 * truth.mean) << truth.file;
  }
}

TEST(Quality, a_lossless_twin_is_at_no_distance) {
  const auto a = engine_of(ModelRunner::load(oracle_path("models/llama-untied")));
  const auto b = engine_of(ModelRunner::load(oracle_path("gguf/lossless/llama-untied.gguf")));
  const GoldenSequence s = read_golden(oracle_path("models/llama-untied/golden"))[1];
  const auto rows = compare_windows(*a, *b, score_windows(s.ids, {}, {16, 5}), {});
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  ASSERT_EQ(rows->size(), s.ids.size() - 1);
  const Comparison c = summarize(*rows);
  EXPECT_LT(c.max, 1e-14);
  EXPECT_EQ(c.same_top, c.tokens);
  EXPECT_EQ(c.perplexity_a, c.perplexity_b);
}

TEST(Quality, perplexity_is_what_the_stored_logits_give) {
  const GoldenSequence s = read_golden(oracle_path("models/llama-q256/golden"))[0];
  ASSERT_EQ(s.positions.size(), s.ids.size());  // every position is stored
  const size_t vocab = s.logits.size() / s.positions.size();
  double nll = 0;
  for (size_t i = 0; i + 1 < s.ids.size(); ++i) {
    double sum = 0;
    for (size_t v = 0; v < vocab; ++v)
      sum += std::exp(double(s.logits[i * vocab + v]));
    nll -= double(s.logits[i * vocab + size_t(s.ids[i + 1])]) - std::log(sum);
  }
  nll /= double(s.ids.size() - 1);
  const auto engine = engine_of(ModelRunner::load(oracle_path("models/llama-q256")));
  const auto scores = score_windows_with(*engine, score_windows(s.ids, {}, {int32_t(s.ids.size()), 1}), {});
  ASSERT_TRUE(scores.ok()) << scores.status().message();
  ASSERT_EQ(scores->size(), s.ids.size() - 1);
  EXPECT_NEAR(perplexity_of(*scores) / std::exp(nll), 1, 1e-5);
}

TEST(Quality, a_window_after_the_first_scores_with_what_lies_before_its_tokens) {
  const auto model = ModelRunner::load(oracle_path("models/llama-q256"));
  const auto engine = engine_of(model);
  const GoldenSequence s = read_golden(oracle_path("models/llama-q256/golden"))[1];
  const auto scores = score_windows_with(*engine, score_windows(s.ids, {}, {16, 4}), {});
  ASSERT_TRUE(scores.ok());
  ASSERT_EQ(scores->size(), s.ids.size() - 1);
  // Token 21 lies in the window of tokens 8 to 23, alone.
  const std::vector<int32_t> piece(s.ids.begin() + 8, s.ids.begin() + 24);
  const auto alone = score_windows_with(*engine, score_windows(piece, {}, {16, 16}), {});
  EXPECT_EQ((*scores)[20], (*alone)[12]);
}

// What convert writes, read again by the loader.
std::shared_ptr<const Model> converted(const std::string& from, const char* type, Conversion* report) {
  const std::string path = ::testing::TempDir() + "converted-" + (type != nullptr ? type : "same") + ".gguf";
  const auto source = ModelSource::open(oracle_path(from));
  if (!source.ok()) throw std::runtime_error(source.status().message());
  const auto done = convert_gguf(**source, path, {.type = type == nullptr ? nullptr : find_encoder(type)});
  if (!done.ok()) throw std::runtime_error(done.status().message());
  *report = *done;
  auto model = ModelRunner::load(path);
  std::remove(path.c_str());  // stays mapped
  return model;
}

std::vector<float> logits_of(const std::shared_ptr<const Model>& model, const std::vector<int32_t>& ids) {
  return ModelRunner(model, {}).logits(ids);
}

TEST(Convert, types_that_lose_nothing_keep_every_bit_of_the_logits) {
  const std::vector<int32_t> ids = read_golden(oracle_path("models/llama-q256/golden"))[0].ids;
  const struct {
    const char* from;
    const char* type;
  } kCases[] = {{"gguf/quant/llama-q256-BF16.gguf", nullptr},
                {"gguf/quant/llama-q256-BF16.gguf", "F32"},
                {"gguf/quant/llama-q256-Q4_K_M-mix.gguf", nullptr},
                // Larger than what is there: stays.
                {"gguf/quant/llama-q256-Q4_0.gguf", "Q8_0"}};
  for (const auto& c : kCases) {
    Conversion report;
    const auto model = converted(c.from, c.type, &report);
    EXPECT_EQ(logits_of(model, ids), logits_of(ModelRunner::load(oracle_path(c.from)), ids))
        << c.from << " " << (c.type != nullptr ? c.type : "as it is");
    if (c.type == nullptr || std::string(c.type) == "Q8_0") EXPECT_EQ(report.kept, report.tensors);
  }
}

TEST(Convert, quantizing_costs_no_more_than_llama_cpp_s_files_do) {
  const std::vector<int32_t> ids = read_golden(oracle_path("models/llama-q256/golden"))[2].ids;
  const auto source = ModelRunner::load(oracle_path("gguf/quant/llama-q256-BF16.gguf"));
  const auto kl_of = [&](const std::shared_ptr<const Model>& model) {
    const auto rows = compare_windows(*engine_of(source), *engine_of(model),
                                      score_windows(ids, {}, {int32_t(ids.size()), 1}), {});
    if (!rows.ok()) throw std::runtime_error(rows.status().message());
    return summarize(*rows).mean;
  };
  for (const char* type : {"Q8_0", "Q4_0", "Q4_K"}) {
    Conversion report;
    const double ours = kl_of(converted("gguf/quant/llama-q256-BF16.gguf", type, &report));
    const double theirs =
        kl_of(ModelRunner::load(oracle_path(std::string("gguf/quant/llama-q256-") + type + ".gguf")));
    EXPECT_GT(report.types.at(type), 4) << type;
    EXPECT_LT(ours, 1.1 * theirs) << type;
    RecordProperty(type, std::to_string(ours) + " against " + std::to_string(theirs));
  }
}

TEST(Quality, stops_when_asked) {
  const auto engine = engine_of(ModelRunner::load(oracle_path("models/llama-q256")));
  const std::vector<int32_t> ids(40, 5);
  const std::atomic<bool> stop{true};
  EXPECT_EQ(score_windows_with(*engine, score_windows(ids, {}, {16, 8}), {&stop, {}}).status().code(),
            Code::kCancelled);
}

}  // namespace
}  // namespace invar
