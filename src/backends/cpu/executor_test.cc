// The executor against the literal interpreter: equal logits and equal KV bytes, whatever the batch, the cut
// of prompts into chunks, the number of threads and the instruction set.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "backends/cpu/executor.h"
#include "backends/cpu/testing/interpreter.h"
#include "backends/cpu/testing/random_model.h"
#include "base/fp_environment.h"
#include "base/testing/reduced.h"

namespace invar {
namespace {

using test::Interpreter;
using test::Model;
using test::Pages;
using test::pick;
using test::Rng;

const KernelTable& reference_kernels() {
  for (const KernelTable* table : kernel_tables()) {
    if (std::string_view(table->name) == "scalar-portable") return *table;
  }
  std::abort();
}

struct Prompt {
  std::vector<int32_t> tokens;
  std::vector<Interpreter::Result> expected;  // [tokens]
  std::unique_ptr<Pages> expected_pages;
  bool long_rope = false;
};

std::vector<Prompt> make_prompts(const Model& model, const std::vector<int>& lengths, Rng& rng) {
  FpEnvironment contract;
  std::vector<Prompt> prompts(lengths.size());
  for (size_t i = 0; i < lengths.size(); i++) {
    Prompt& p = prompts[i];
    p.long_rope = model.graph.rotates_long(lengths[i]);
    Interpreter interpreter(model, reference_kernels(), p.long_rope);
    p.expected_pages = std::make_unique<Pages>(model);
    for (int t = 0; t < lengths[i]; t++) {
      p.tokens.push_back(pick(rng, 0, model.graph.vocab - 1));
      p.expected.push_back(interpreter.run(p.tokens.back(), t, *p.expected_pages));
    }
  }
  return prompts;
}

// Runs all prompts through the executable in random ragged steps and compares everything it returns.
class Crowd {
 public:
  Crowd(const Model& model, const std::vector<Prompt>& prompts, Executable& executable,
        ExecutableLimits limits, uint32_t seed)
      : model_(model), prompts_(prompts), executable_(executable), limits_(limits), rng_(seed) {
    for (size_t i = 0; i < prompts.size(); i++)
      pages_.push_back(std::make_unique<Pages>(model));
    done_.assign(prompts.size(), 0);
  }

  void run(int most_rows) {
    most_rows_ = most_rows;
    while (step()) {
    }
    for (size_t i = 0; i < prompts_.size(); i++) {
      EXPECT_TRUE(pages_[i]->same_bytes(*prompts_[i].expected_pages)) << "KV of prompt " << i;
    }
  }

  int mixed_steps() const { return mixed_steps_; }

 private:
  bool step() {
    std::vector<int32_t> tokens, logit_rows;
    std::vector<SequenceRows> sequences;
    std::vector<const Interpreter::Result*> expected;
    std::vector<size_t> order(prompts_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), rng_);
    for (size_t i : order) {
      const int left = int(prompts_[i].tokens.size()) - done_[i],
                room = limits_.max_tokens - int(tokens.size());
      if (left == 0 || room == 0 || rng_() % 4 == 0) continue;
      const int rows = std::min({pick(rng_, 1, most_rows_), left, room});
      sequences.push_back({int32_t(tokens.size()), rows, done_[i], pages_[i]->reserve(done_[i] + rows),
                           prompts_[i].long_rope});
      for (int r = 0; r < rows; r++) {
        if (int(logit_rows.size()) < limits_.max_logit_rows && rng_() % 3 != 0) {
          logit_rows.push_back(int32_t(tokens.size()));
        }
        expected.push_back(&prompts_[i].expected[size_t(done_[i] + r)]);
        tokens.push_back(prompts_[i].tokens[size_t(done_[i] + r)]);
      }
      done_[i] += rows;
    }
    if (sequences.size() > 1) mixed_steps_++;
    const StepOutputs out = executable_.run({tokens, sequences, logit_rows});
    check(out, expected, logit_rows);
    return done_ != lengths();
  }

  void check(const StepOutputs& out, const std::vector<const Interpreter::Result*>& expected,
             const std::vector<int32_t>& logit_rows) {
    const size_t vocab = size_t(model_.graph.vocab);
    ASSERT_EQ(out.logits.size(), logit_rows.size() * vocab);
    ASSERT_EQ(out.faults.size(), expected.size());
    for (size_t l = 0; l < logit_rows.size(); l++) {
      const Interpreter::Result& want = *expected[size_t(logit_rows[l])];
      EXPECT_EQ(out.faults[size_t(logit_rows[l])], want.fault);
      if (want.fault) continue;
      ASSERT_EQ(std::memcmp(out.logits.data() + l * vocab, want.logits.data(), vocab * sizeof(float)), 0)
          << "logits of row " << logit_rows[l] << " of " << expected.size();
    }
    for (size_t t = 0; t < expected.size(); t++)
      EXPECT_LE(out.faults[t], expected[t]->fault) << "row " << t;
  }

  std::vector<int> lengths() const {
    std::vector<int> n;
    for (const Prompt& p : prompts_)
      n.push_back(int(p.tokens.size()));
    return n;
  }

  const Model& model_;
  const std::vector<Prompt>& prompts_;
  Executable& executable_;
  const ExecutableLimits limits_;
  Rng rng_;
  std::vector<std::unique_ptr<Pages>> pages_;
  std::vector<int> done_;
  int most_rows_ = 1;
  int mixed_steps_ = 0;
};

// Either the real one, or one under which every piece of work looks long enough to be a task of its own.
struct Setting {
  const KernelTable* kernels;
  int threads;
  bool cut_finely;
};

std::vector<Setting> all_settings() {
  std::vector<Setting> settings;
  for (const KernelTable* table : kernel_tables()) {
    if (!cpu_supports(*table)) continue;
    for (int threads : {1, 2, 3}) {
      for (bool cut_finely : {false, true}) {
        const bool short_list = threads == (cut_finely ? 3 : 1);
        if (short_list || !reduced_tests()) settings.push_back({table, threads, cut_finely});
      }
    }
  }
  return settings;
}

CostModel cost_of(const Setting& setting) {
  if (!setting.cut_finely) return cost_model(setting.kernels->name);
  return {.quantized_macs_per_ns = 1e-4,
          .float_macs_per_ns = 1e-4,
          .attend_macs_per_ns = 1e-4,
          .floats_per_ns = 1e-4};
}

void expect_equal_to_interpreter(const Model& model, const std::vector<Prompt>& prompts, uint32_t seed) {
  constexpr ExecutableLimits kLimits{.max_tokens = 80, .max_logit_rows = 30};
  for (const Setting& setting : all_settings()) {
    SCOPED_TRACE(fmt::format("{}, {} threads, cut {}, seed {}:{}, KV {}", setting.kernels->name,
                             setting.threads, setting.cut_finely ? "finely" : "by cost", seed, model.text,
                             model.codec->name));
    ThreadPool pool({.threads = setting.threads});
    auto executable =
        CpuExecutable::make(model.graph, model.weights, kLimits, *setting.kernels, cost_of(setting), pool);
    ASSERT_TRUE(executable.ok()) << executable.status().message();
    int mixed_steps = 0;
    for (int most_rows : {1, 7, 64}) {
      Crowd crowd(model, prompts, **executable, kLimits, seed);
      crowd.run(most_rows);
      mixed_steps += crowd.mixed_steps();
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_GT(mixed_steps, 0);
  }
}

TEST(ExecutorSets, sets_that_this_cpu_lacks_are_reported) {
  std::string missing;
  for (const KernelTable* table : kernel_tables()) {
    if (!cpu_supports(*table)) missing += std::string(missing.empty() ? "" : ", ") + table->name;
  }
  if (!missing.empty()) GTEST_SKIP() << "NOT RUN: this CPU lacks the instruction set " << missing;
}

TEST(Executor, equals_the_literal_interpreter_on_random_graphs) {
  for (uint32_t seed = 1; seed <= (reduced_tests() ? 6u : 24u) && !HasFailure(); seed++) {
    const Model model = test::random_model(seed);
    Rng rng(seed);
    const std::vector<Prompt> prompts = make_prompts(model, {pick(rng, 20, 90), 1, pick(rng, 2, 30)}, rng);
    for (const Prompt& p : prompts) {
      for (const Interpreter::Result& r : p.expected)
        ASSERT_EQ(r.fault, 0) << "seed " << seed << model.text;
    }
    expect_equal_to_interpreter(model, prompts, seed);
  }
}

// Steps in which some contexts are split and others, shorter beside them, are not.
TEST(Executor, equals_the_interpreter_where_the_context_is_split) {
  for (uint32_t seed = 1; seed <= 2 && !HasFailure(); seed++) {
    Rng rng(seed);
    const test::Shape shape{.layers = 1,
                            .hidden = 32,
                            .heads = 4,
                            .kv_heads = 2,
                            .head_dim = 16,
                            .rope_dim = 16,
                            .ffn = 32,
                            .vocab = 40,
                            .sinks = seed == 2};
    const Model model = test::make_model(shape, rng, &kv_codecs()[seed % kv_codecs().size()]);
    expect_equal_to_interpreter(model, make_prompts(model, {600, 300, 40}, rng), seed);
  }
}

TEST(Executor, a_row_with_nan_fails_alone) {
  Rng rng(7);
  const test::Shape shape{.layers = 2,
                          .hidden = 64,
                          .heads = 4,
                          .kv_heads = 2,
                          .head_dim = 16,
                          .rope_dim = 16,
                          .ffn = 96,
                          .vocab = 50,
                          .tied = false};
  Model model = test::make_model(shape, rng, &kv_codecs()[0]);
  // An embedding table in f32, so that one token can be NaN and one infinite.
  constexpr int32_t kNanToken = 3, kInfToken = 17;
  PackedMatrix& table = model.weights.matrices[0];
  ASSERT_EQ(model.graph.weights[0].name, "embed");
  table.form = find_packed_form("f32");
  Buffer& bytes = model.bytes.emplace_back(table.bytes());
  table.data = bytes.data();
  test::fill_float_tiles(rng, table, bytes.data());
  const auto poison = [&](int32_t token, int64_t k, float value) {
    bytes.as<float>()[(token / kTileRows * table.cols + k) * kTileRows + token % kTileRows] = value;
  };
  poison(kNanToken, 5, std::numeric_limits<float>::quiet_NaN());
  poison(kInfToken, 40, -std::numeric_limits<float>::infinity());

  std::vector<Prompt> prompts(3);
  for (size_t i = 0; i < prompts.size(); i++) {
    FpEnvironment contract;
    Interpreter interpreter(model, reference_kernels());
    prompts[i].expected_pages = std::make_unique<Pages>(model);
    for (int t = 0; t < 20; t++) {
      const int32_t bad = i == 0 ? kNanToken : kInfToken;
      prompts[i].tokens.push_back(i < 2 && t == 11 ? bad : 20 + t + int32_t(i));
      prompts[i].expected.push_back(interpreter.run(prompts[i].tokens.back(), t, *prompts[i].expected_pages));
    }
    EXPECT_EQ(prompts[i].expected[11].fault, i < 2 ? 1 : 0);
    EXPECT_EQ(prompts[i].expected[10].fault, 0);
  }
  expect_equal_to_interpreter(model, prompts, 1);
}

TEST(Executor, infinite_logits_are_a_fault) {
  Rng rng(8);
  const test::Shape shape{.layers = 1,
                          .hidden = 32,
                          .heads = 2,
                          .kv_heads = 1,
                          .head_dim = 16,
                          .rope_dim = 16,
                          .ffn = 32,
                          .vocab = 50,
                          .tied = false};
  Model model = test::make_model(shape, rng, &kv_codecs()[0]);
  const auto head = std::find_if(model.graph.weights.begin(), model.graph.weights.end(),
                                 [](const Weight& w) { return w.name == "head"; });
  PackedMatrix& matrix = model.weights.matrices[size_t(head - model.graph.weights.begin())];
  matrix.form = find_packed_form("f32");
  Buffer& bytes = model.bytes.emplace_back(matrix.bytes());
  matrix.data = bytes.data();
  for (int64_t k = 0; k < matrix.cols; k++)
    bytes.as<float>()[k * kTileRows + 5] = 3e38f;
  const std::vector<Prompt> prompts = make_prompts(model, {12, 5}, rng);
  EXPECT_EQ(prompts[0].expected[0].fault, 1);
  expect_equal_to_interpreter(model, prompts, 1);
}

// x is overwritten by the second add although the first reader in the list runs late, behind two linear
// layers.
TEST(Executor, a_residual_waits_for_slower_readers) {
  GraphBuilder b;
  const WeightId table = b.matrix("embed", 40, 32);
  const ValueId x = b.embed("embed", table);
  const ValueId n = b.rms_norm("norm", x, b.vector("norm", 32), 1e-5f);
  const ValueId deep =
      b.linear("deep", b.linear("first", n, b.matrix("first", 32, 32)), b.matrix("deep", 32, 32));
  const ValueId late = b.gated_silu("late", deep, x);
  const ValueId y = b.add("add", x, b.linear("second", n, b.matrix("second", 32, 32)));
  const ValueId logits = b.linear(
      "head",
      b.select_logit_rows("select", b.rms_norm("norm2", b.add("sum", y, late), b.vector("norm", 32), 1e-5f)),
      table);
  Model model;
  model.graph = std::move(b).finish(logits, 40).value();
  model.codec = &kv_codecs()[0];
  Rng rng(9);
  test::make_weights(rng, model);
  expect_equal_to_interpreter(model, make_prompts(model, {12, 5}, rng), 1);
}

TEST(Executor, runs_steps_without_logit_rows_and_empty_steps) {
  const Model model = test::random_model(2);
  auto backend = make_cpu_backend({.threads = 2}).value();
  auto executable =
      backend->compile(model.graph, model.weights, {.max_tokens = 8, .max_logit_rows = 2}).value();
  EXPECT_TRUE(executable->run({}).logits.empty());
  Pages pages(model);
  const std::vector<int32_t> tokens = {1, 2, 3};
  const std::vector<SequenceRows> sequences = {{0, 3, 0, pages.reserve(3)}};
  const StepOutputs out = executable->run({tokens, sequences, {}});
  EXPECT_TRUE(out.logits.empty());
  EXPECT_EQ(out.faults.size(), 3u);
}

}  // namespace
}  // namespace invar
