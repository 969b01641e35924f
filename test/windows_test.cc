// Sliding windows as placements: pages that no later query reads expire, and no answer shows it. The oracle
// is a cache that keeps every page and masks: the same arithmetic over runs that start at position 0. Windows
// below, at and above the length of a page, prompts around the length of the window, cut into chunks, found
// in the prefix cache, pushed out of the pool and forked.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "backends/backend.h"
#include "engine/engine.h"
#include "kv/kv_cache.h"
#include "schedule_models.h"

namespace invar {
namespace {

constexpr int32_t kContext = 480;
using Logits = std::map<int32_t, uint64_t>;  // hash of the bits, by position

std::vector<int32_t> tokens_of(int32_t n, int32_t vocab) {
  ScheduleRandom random(5);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < n; ++i)
    ids.push_back(random.between(0, vocab - 1));
  return ids;
}

// Every position in one pass over a cache from which nothing expires; the mask does the rest.
Logits masked_full_cache(const Model& model, const std::vector<int32_t>& ids, const std::string& kv) {
  auto backend = make_cpu_backend({.threads = 1, .isa = ""});
  EXPECT_TRUE(backend.ok()) << backend.status().message();
  const Graph& graph = model.graph();
  const int32_t n = int32_t(ids.size());
  auto executable = (*backend)->compile(graph, model.weights(), {n, n});
  EXPECT_TRUE(executable.ok()) << executable.status().message();

  std::vector<PagePool::SizeClass> classes;
  const std::vector<KvPlacement> keep_all(graph.kv_groups.size());
  for (const KvGroup& g : graph.kv_groups)
    classes.push_back({{find_kv_codec(kv), g.layers, g.kv_heads, g.head_dim}, keep_all[0].pages_for(n)});
  auto pool = PagePool::create(classes);
  EXPECT_TRUE(pool.ok());
  Logits logits;
  {
    KvCache cache(pool->get(), keep_all);
    EXPECT_TRUE(cache.reserve(n));
    std::vector<std::vector<KvRun>> runs(graph.kv_groups.size());
    std::vector<KvView> views;
    for (size_t g = 0; g < runs.size(); ++g) {
      cache.append_runs(int32_t(g), n, &runs[g]);
      views.push_back({&(*pool)->layout(int32_t(g)), runs[g], graph.kv_groups[g].window});
    }
    std::vector<int32_t> rows;
    for (int32_t i = 0; i < n; ++i)
      rows.push_back(i);
    const SequenceRows sequence{0, n, 0, views};
    const StepOutputs out = (*executable)->run({ids, std::span(&sequence, 1), rows});
    const size_t vocab = size_t(graph.vocab);
    for (int32_t i = 0; i < n; ++i)
      logits[i] = hash64(std::as_bytes(out.logits.subspan(size_t(i) * vocab, vocab)));
  }
  return logits;
}

class Windows : public testing::TestWithParam<int32_t> {
 protected:
  Windows()
      : window_(GetParam()),
        model_(load_windowed(std::string(INVAR_TEST_DATA) + "/oracles/models/qwen2-swa", window_)),
        ids_(tokens_of(kContext, model_->info().vocab)) {}

  std::unique_ptr<Engine> engine(EngineOptions options) {
    options.context = kContext;
    if (options.memory_bytes == 0) options.memory_bytes = uint64_t{32} << 20;
    auto backend = make_cpu_backend({.threads = 1, .isa = ""});
    EXPECT_TRUE(backend.ok()) << backend.status().message();
    auto created = Engine::create(model_, std::move(*backend), options);
    EXPECT_TRUE(created.ok()) << created.status().message();
    (*created)->set_trace([this](const StepRecord& r) {
      reused_ += r.reused_tokens;
      preempted_ += r.preempted;
    });
    return std::move(*created);
  }
  GenerateRequest request(int32_t prompt, int32_t max_tokens, Logits* logits) const {
    GenerateRequest r;
    r.prompt.assign(ids_.begin(), ids_.begin() + prompt);
    r.max_tokens = max_tokens;
    r.sampling.temperature = 0;
    r.sampling.seed = 3;
    r.ignore_eos = true;
    if (logits != nullptr)
      r.on_logits = [logits](int32_t p, std::span<const float> row) {
        EXPECT_TRUE(logits->emplace(p, hash64(std::as_bytes(row))).second) << p;
      };
    return r;
  }
  std::vector<int32_t> tokens(Stream& stream) {
    std::vector<int32_t> out;
    while (auto event = stream.try_next()) {
      if (event->token) out.push_back(*event->token);
      EXPECT_NE(event->finish, FinishReason::kError) << event->error.message();
      expired_ += event->finish != FinishReason::kNone && event->prompt.lookup.end == PrefixEnd::kExpired;
    }
    return out;
  }
  std::vector<int32_t> run(Engine& engine, GenerateRequest r) {
    auto stream = engine.submit(std::move(r));
    EXPECT_TRUE(stream.ok()) << stream.status().message();
    while (engine.step()) {
    }
    return tokens(**stream);
  }
  // Lengths at which windows and pages begin and end.
  std::vector<int32_t> edges() const {
    std::vector<int32_t> lengths;
    for (const int32_t at : {window_, kPageTokens, 2 * kPageTokens, kPageTokens + window_, 3 * kPageTokens,
                             2 * kPageTokens + window_})
      for (const int32_t n : {at - 1, at, at + 1})
        if (n >= 1 && n <= 300) lengths.push_back(n);
    std::sort(lengths.begin(), lengths.end());
    lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
    return lengths;
  }

  const int32_t window_;
  const std::shared_ptr<const Model> model_;
  const std::vector<int32_t> ids_;
  int64_t reused_ = 0, preempted_ = 0;
  int64_t expired_ = 0;  // prompts of which a window was gone
};

TEST_P(Windows, a_window_that_expires_equals_a_full_cache_with_a_mask) {
  const int32_t n = 300;
  for (const KvCodec& codec : kv_codecs()) {
    const Logits oracle = masked_full_cache(*model_, {ids_.begin(), ids_.begin() + n}, codec.name);
    for (const int32_t chunk : {0, 1, 7, window_ - 1, window_, window_ + 1, 63, 64, 65}) {
      EngineOptions options{.kv = codec.name, .prefix_cache_bytes = 0};
      options.prefill_chunk = chunk;
      options.max_logit_rows = 512;
      auto engine = this->engine(options);
      Logits logits;
      GenerateRequest r = request(n, 0, &logits);
      r.all_prompt_logits = true;
      run(*engine, std::move(r));
      ASSERT_EQ(logits, oracle) << "chunks of " << chunk << ", " << codec.name;
    }
  }
}

TEST_P(Windows, the_mask_matters) {
  const std::vector<int32_t> ids(ids_.begin(), ids_.begin() + window_ + 1);
  const auto wider = load_windowed(std::string(INVAR_TEST_DATA) + "/oracles/models/qwen2-swa", window_ + 1);
  const Logits here = masked_full_cache(*model_, ids, "f32"), there = masked_full_cache(*wider, ids, "f32");
  for (int32_t p = 0; p <= window_; ++p)
    EXPECT_EQ(here.at(p) == there.at(p), p < window_) << p;
}

TEST_P(Windows, pages_stay_within_the_window_and_the_chunk) {
  for (const int32_t chunk : {1, 50, 64, 200}) {
    EngineOptions options{.prefix_cache_bytes = 0, .max_step_tokens = 200};
    options.prefill_chunk = chunk;
    auto engine = this->engine(options);
    const KvPlacement full{}, windowed{.keep = window_};
    auto stream = engine->submit(request(400, 60, nullptr));
    ASSERT_TRUE(stream.ok());
    int32_t computed = 0, steps = 0;
    while (engine->step()) {
      if (engine->stats().pages_used == 0) break;
      computed += computed >= 400 ? 1 : std::min(chunk, 400 - computed);
      // A step has committed: what it wrote lies inside the window, and older pages are back.
      const int32_t held =
          full.pages_for(computed) + full.pages_for(computed) - windowed.first_page(computed);
      ASSERT_EQ(engine->stats().pages_used, held) << "after " << computed << " tokens, chunks of " << chunk;
      ASSERT_LE(held - full.pages_for(computed), windowed.pages_for(window_) + 1);
      ASSERT_LT(++steps, 1000);
    }
    EXPECT_EQ(tokens(**stream).size(), 60u);
    EXPECT_EQ(engine->stats().pages_used, 0);
  }
}

TEST_P(Windows, prefixes_found_at_every_edge_give_the_same_bits) {
  EngineOptions options;
  auto cached = this->engine(options);
  options.prefix_cache_bytes = 0;
  auto cold = this->engine(options);
  run(*cached, request(400, 40, nullptr));
  for (const int32_t n : edges()) {
    Logits a, b;
    GenerateRequest hit = request(n, 4, &a), lone = request(n, 4, &b);
    for (const int32_t other : {7, 11, 13}) {  // parts from what is known at n
      hit.prompt.push_back((ids_[size_t(n)] + other) % 480);
      lone.prompt.push_back(hit.prompt.back());
    }
    const int64_t before = reused_;
    const auto found = run(*cached, std::move(hit));
    EXPECT_EQ(reused_ - before, n) << n;
    EXPECT_EQ(found, run(*cold, std::move(lone))) << n;
    EXPECT_EQ(a, b) << n;
  }
}

// Kept pages in the middle of a windowed group go first, so that some prefixes cannot be gone on with.
TEST_P(Windows, prefixes_of_which_a_window_is_gone_are_computed_again) {
  EngineOptions options;
  options.max_step_tokens = 64;
  options.context = kContext;
  ScheduleModel sizes({"", "models/qwen2-swa", window_});
  options.memory_bytes = sizes.bytes_of_one(options) * 14 / 10;
  auto cached = this->engine(options);
  options.memory_bytes = 0;
  options.prefix_cache_bytes = 0;
  auto cold = this->engine(options);
  for (const int32_t n : edges()) {
    run(*cached, request(400, 1, nullptr));
    Logits a, b;
    GenerateRequest again = request(n, 70, &a), lone = request(n, 70, &b);
    again.prompt.push_back((ids_[size_t(n)] + 7) % 480);
    lone.prompt = again.prompt;
    EXPECT_EQ(run(*cached, std::move(again)), run(*cold, std::move(lone))) << n;
    EXPECT_EQ(a, b) << n;
  }
  EXPECT_GT(expired_, 0);
  EXPECT_GT(reused_, 0);
}

TEST_P(Windows, sequences_that_were_pushed_out_answer_the_same) {
  EngineOptions options;
  options.max_step_tokens = 64;
  options.context = kContext;
  ScheduleModel sizes({"", "models/qwen2-swa", window_});
  options.memory_bytes = sizes.bytes_of_one(options);
  options.prefix_cache_bytes = 0;
  auto tight = this->engine(options);
  options.memory_bytes = 0;
  auto plenty = this->engine(options);
  const std::vector<int32_t> lengths = {std::max(1, window_ - 1), window_, window_ + 1, 40, 63};
  std::vector<Logits> logits(lengths.size());
  std::vector<std::shared_ptr<Stream>> streams;
  for (size_t i = 0; i < lengths.size(); ++i) {
    auto stream = tight->submit(request(lengths[i], 220, &logits[i]));
    ASSERT_TRUE(stream.ok()) << stream.status().message();
    streams.push_back(*stream);
  }
  while (tight->step()) {
  }
  EXPECT_GT(preempted_, 0);
  for (size_t i = 0; i < lengths.size(); ++i) {
    Logits lone;
    EXPECT_EQ(tokens(*streams[i]), run(*plenty, request(lengths[i], 220, &lone))) << lengths[i];
    EXPECT_EQ(logits[i], lone) << lengths[i];
  }
  EXPECT_EQ(tight->stats().pages_used, 0);
}

TEST_P(Windows, forks_answer_as_alone) {
  auto engine = this->engine({}), lone = this->engine({.prefix_cache_bytes = 0});
  for (const int32_t n : edges()) {
    const auto drawn = [&](uint32_t index) {
      GenerateRequest r = request(n, 90, nullptr);
      r.sampling.temperature = 1;
      r.sampling.sample_index = index;
      return r;
    };
    auto streams = engine->submit(drawn(0), 3);
    ASSERT_TRUE(streams.ok()) << streams.status().message();
    while (engine->step()) {
    }
    for (uint32_t i = 0; i < 3; ++i)
      EXPECT_EQ(tokens(*(*streams)[i]), run(*lone, drawn(i))) << n << ", choice " << i;
  }
  EXPECT_EQ(engine->stats().pages_used, 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Windows, testing::Values(1, 2, 13, 63, 64, 65, 127, 128, 129, 300),
                         [](const auto& info) { return "window_" + std::to_string(info.param); });

}  // namespace
}  // namespace invar
