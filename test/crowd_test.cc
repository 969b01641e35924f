// The crowd property on real models through the CPU backend: an answer (token ids and the bits of the logits
// they came from) is the same alone and among others, in any order, cut into any chunks, with any number of
// threads, on every instruction set of this CPU. The full product of settings or every pair of them on tiny
// models, every pair on SmolLM2. Everything else that may happen to a request: schedules_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/hash.h"
#include "engine/engine.h"
#include "kernels/kernel_table.h"
#include "models/model.h"
#include "oracle_models.h"

namespace invar {
namespace {

constexpr int kPrompts = 24;
constexpr uint32_t kPromptSeed = 20260801, kOrderSeeds[5] = {11, 22, 33, 44, 55};
constexpr int32_t kChunks[4] = {1, 7, 64, 0};  // 0 = as much as a step takes
constexpr int kThreads[3] = {1, 2, 3};

// The scalar set without hardware FMA: many times slower, so it runs less often, and on SmolLM2 with short
// prompts of its own.
const std::string kPortable = "scalar-portable";

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const KernelTable* table : kernel_tables()) {
    if (cpu_supports(*table)) names.push_back(table->name);
  }
  return names;
}

struct Prompt {
  std::vector<int32_t> ids;
  int32_t max_tokens;
  SamplingParams sampling;
  bool all_logits;  // compare every prompt position, too
};

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<uint64_t> logits;  // hash of each observed row, by position
};

struct Setting {
  std::string isa;
  int threads;
  int32_t chunk;
  uint32_t order;
  std::string name() const {
    return isa + ", " + std::to_string(threads) + " threads, chunks of " +
           (chunk ? std::to_string(chunk) : "all") + ", order " + std::to_string(order);
  }
};

struct Difference {
  int64_t tokens = 0, logits = 0;
};

// lengths: how long the prompts are, in turn.
std::vector<Prompt> make_prompts(int32_t vocab, const std::vector<int32_t>& lengths, int32_t max_tokens,
                                 int every, int count = kPrompts) {
  std::mt19937 random(kPromptSeed);
  std::vector<Prompt> prompts;
  for (int i = 0; i < count; ++i) {
    Prompt p{{}, 1 + int32_t(random() % uint32_t(max_tokens)), {}, every > 0 && i % every == 0};
    for (int32_t n = lengths[size_t(i) % lengths.size()]; n > 0; --n)
      p.ids.push_back(int32_t(random() % uint32_t(vocab)));
    p.sampling.temperature = i % 2 ? 0.8f : 0.0f;
    p.sampling.seed = random();
    if (i % 5 == 1) p.sampling.top_p = 0.9f;
    if (i % 7 == 2) p.sampling.repetition_penalty = 1.2f;
    prompts.push_back(std::move(p));
  }
  return prompts;
}

class Crowd {
 public:
  Crowd(std::shared_ptr<const Model> model, std::vector<Prompt> prompts)
      : model_(std::move(model)), prompts_(std::move(prompts)) {}

  std::unique_ptr<Engine> engine(const Setting& setting) {
    auto backend = make_cpu_backend({.threads = setting.threads, .isa = setting.isa});
    EXPECT_TRUE(backend.ok()) << backend.status().message();
    EngineOptions options;
    options.memory_bytes = uint64_t{256} << 20;
    options.context = 512;
    options.prefill_chunk = setting.chunk;
    options.max_step_tokens = step_tokens(setting);
    options.max_batch = 16;
    options.max_logit_rows = 40;
    auto created =
        Engine::create(EngineModel{&model_->graph(), &model_->weights(), kTestedContext, 0, model_},
                       std::move(*backend), options);
    EXPECT_TRUE(created.ok()) << created.status().message();
    (*created)->set_trace([this](const StepRecord& r) {
      mixed_ += r.mixed();
      cut_ += r.cut_prompts > 0;
    });
    return std::move(*created);
  }

  void run_alone(const Setting& setting) {
    auto one = engine(setting);
    for (const Prompt& prompt : prompts_) {
      Answer answer;
      auto stream = submit(*one, prompt, &answer);
      while (one->step()) {
      }
      take(*stream, &answer);
      alone_.push_back(std::move(answer));
    }
  }

  // All prompts in a random order, a few new ones before each step, so that decode rows meet prompt chunks.
  void run_together(Engine& engine, const Setting& setting) {
    std::mt19937 random(setting.order);
    std::vector<size_t> order(prompts_.size());
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[random() % i]);
    std::vector<Answer> answers(prompts_.size());
    std::vector<std::shared_ptr<Stream>> streams(prompts_.size());
    size_t next = 0;
    bool busy = true;
    mixed_ = cut_ = 0;
    while (busy || next < order.size()) {
      for (uint32_t n = next == 0 ? 6 : random() % 4; n > 0 && next < order.size(); --n, ++next)
        streams[order[next]] = submit(engine, prompts_[order[next]], &answers[order[next]]);
      busy = engine.step();
    }
    for (size_t i = 0; i < prompts_.size(); ++i)
      take(*streams[i], &answers[i]);
    compare(answers, setting);
    EXPECT_GT(mixed_, 0) << setting.name() << ": decode rows and prompt chunks never met";
    if (longest_prompt() > (setting.chunk > 0 ? setting.chunk : step_tokens(setting)))
      EXPECT_GT(cut_, 0) << setting.name() << ": no prompt was cut";
    all_mixed_ += mixed_, all_cut_ += cut_;
  }

  void expect_equal() const {
    std::printf(
        "%s: %lld crowds of %zu prompts, %lld mixed steps, %lld steps with cut prompts; %lld token ids and "
        "%lld logit rows differ; prompt seed %u\n",
        model_->info().name.c_str(), static_cast<long long>(crowds_), prompts_.size(),
        static_cast<long long>(all_mixed_), static_cast<long long>(all_cut_),
        static_cast<long long>(difference_.tokens), static_cast<long long>(difference_.logits), kPromptSeed);
    EXPECT_EQ(difference_.tokens, 0);
    EXPECT_EQ(difference_.logits, 0);
  }

 private:
  static int32_t step_tokens(const Setting& setting) { return setting.chunk == 0 ? 512 : 96; }
  int32_t longest_prompt() const {
    size_t longest = 0;
    for (const Prompt& p : prompts_)
      longest = std::max(longest, p.ids.size());
    return int32_t(longest);
  }

  static std::shared_ptr<Stream> submit(Engine& engine, const Prompt& prompt, Answer* answer) {
    GenerateRequest request;
    request.prompt = prompt.ids;
    request.max_tokens = prompt.max_tokens;
    request.sampling = prompt.sampling;
    request.all_prompt_logits = prompt.all_logits;
    request.on_logits = [answer](int32_t, std::span<const float> row) {
      answer->logits.push_back(hash64(std::as_bytes(row)));
    };
    auto stream = engine.submit(std::move(request));
    EXPECT_TRUE(stream.ok()) << stream.status().message();
    return *stream;
  }

  static void take(Stream& stream, Answer* answer) {
    FinishReason finish = FinishReason::kNone;
    while (auto event = stream.try_next()) {
      if (event->token) answer->tokens.push_back(*event->token);
      finish = event->finish;
      EXPECT_NE(finish, FinishReason::kError) << event->error.message();
    }
    EXPECT_EQ(finish, FinishReason::kLength);
  }

  template <class T>
  static int64_t differing(const std::vector<T>& a, const std::vector<T>& b) {
    int64_t n = int64_t(std::max(a.size(), b.size()) - std::min(a.size(), b.size()));
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
      n += a[i] != b[i];
    return n;
  }

  void compare(const std::vector<Answer>& answers, const Setting& setting) {
    ++crowds_;
    Difference d;
    for (size_t i = 0; i < answers.size(); ++i) {
      d.tokens += differing(answers[i].tokens, alone_[i].tokens);
      d.logits += differing(answers[i].logits, alone_[i].logits);
    }
    difference_.tokens += d.tokens;
    difference_.logits += d.logits;
    EXPECT_TRUE(d.tokens == 0 && d.logits == 0)
        << setting.name() << ": " << d.tokens << " token ids and " << d.logits << " logit rows differ";
  }

  std::shared_ptr<const Model> model_;
  std::vector<Prompt> prompts_;
  std::vector<Answer> alone_;
  Difference difference_;
  int64_t mixed_ = 0, cut_ = 0;  // of the crowd that runs
  int64_t crowds_ = 0, all_mixed_ = 0, all_cut_ = 0;
};

std::shared_ptr<const Model> load(const std::string& path) {
  LoadOptions options;
  options.progress = false;
  auto model = Model::load(path, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *model : nullptr;
}

// Settings in which every pair of values of two different factors occurs: rows are taken greedily, each the
// one that covers most pairs that are still missing. A slow set costs more, so that it appears only as often
// as it must.
std::vector<Setting> pairwise(const std::vector<std::string>& sets) {
  const std::vector<int> sizes = {int(sets.size()), int(std::size(kThreads)), int(std::size(kChunks)),
                                  int(std::size(kOrderSeeds))};
  std::vector<std::vector<int>> all;
  for (int i = 0; i < sizes[0] * sizes[1] * sizes[2] * sizes[3]; ++i)
    all.push_back({i % sizes[0], i / sizes[0] % sizes[1], i / (sizes[0] * sizes[1]) % sizes[2],
                   i / (sizes[0] * sizes[1] * sizes[2])});
  std::vector<std::vector<int>> missing;  // {factor, value, factor, value}
  for (int f = 0; f < 4; ++f)
    for (int g = f + 1; g < 4; ++g)
      for (int v = 0; v < sizes[size_t(f)]; ++v)
        for (int w = 0; w < sizes[size_t(g)]; ++w)
          missing.push_back({f, v, g, w});
  const auto covers = [](const std::vector<int>& row, const std::vector<int>& pair) {
    return row[size_t(pair[0])] == pair[1] && row[size_t(pair[2])] == pair[3];
  };
  std::vector<Setting> settings;
  while (!missing.empty()) {
    const auto gain = [&](const std::vector<int>& row) {
      const auto n =
          std::count_if(missing.begin(), missing.end(), [&](const auto& pair) { return covers(row, pair); });
      return sets[size_t(row[0])] == "scalar" ? double(n) - 0.5 : double(n);
    };
    const auto best = *std::max_element(all.begin(), all.end(),
                                        [&](const auto& a, const auto& b) { return gain(a) < gain(b); });
    std::erase_if(missing, [&](const auto& pair) { return covers(best, pair); });
    settings.push_back({sets[size_t(best[0])], kThreads[best[1]], kChunks[best[2]], kOrderSeeds[best[3]]});
  }
  return settings;
}

// One of every family, and quantized weights.
std::vector<std::string> tiny_models() {
  std::vector<std::string> paths = {"gguf/quant/llama-q256-Q4_K_M-mix.gguf"};
  for (const OracleModel& model : family_models())
    paths.emplace_back(model.path);
  return paths;
}

// The full product where weights are float and where they are quantized; elsewhere every pair and, of the
// portable set, which is many times slower, one. INVAR_TEST_EXHAUSTIVE=1: the full product everywhere.
std::vector<Setting> settings_for(const std::string& model, const std::vector<std::string>& sets) {
  const char* exhaustive = std::getenv("INVAR_TEST_EXHAUSTIVE");
  if (model.find("/llama-") == std::string::npos && (exhaustive == nullptr || *exhaustive == 0)) {
    std::vector<std::string> fast = sets;
    std::erase(fast, kPortable);
    std::vector<Setting> pairs = pairwise(fast);
    pairs.push_back({kPortable, 2, 7, kOrderSeeds[0]});
    return pairs;
  }
  std::vector<Setting> all;
  for (const std::string& isa : sets)
    for (const int threads : kThreads)
      for (const int32_t chunk : kChunks)
        for (const uint32_t order : kOrderSeeds)
          all.push_back({isa, threads, chunk, order});
  return all;
}

class TinyModel : public testing::TestWithParam<std::string> {};

TEST_P(TinyModel, crowd_equals_alone) {
  const auto model = load(std::string(INVAR_TEST_DATA) + "/oracles/" + GetParam());
  ASSERT_NE(model, nullptr);
  const std::vector<int32_t> lengths = {3, 17, 70, 1, 24, 130, 12, 40, 8, 64, 2, 300};
  Crowd crowd(model, make_prompts(model->info().vocab, lengths, 10, 3));
  const auto sets = instruction_sets();
  crowd.run_alone({sets.back(), 1, 0, 0});
  for (const Setting& setting : settings_for(GetParam(), sets)) {
    auto engine = crowd.engine(setting);
    crowd.run_together(*engine, setting);
    EXPECT_EQ(engine->stats().pages_used, 0);
  }
  crowd.expect_equal();
}

INSTANTIATE_TEST_SUITE_P(Models, TinyModel, testing::ValuesIn(tiny_models()), [](const auto& info) {
  std::string name = std::filesystem::path(info.param).filename().string();
  std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
});

TEST(CrowdSets, sets_that_this_cpu_lacks_are_reported) {
  std::string missing;
  for (const KernelTable* table : kernel_tables()) {
    if (!cpu_supports(*table)) missing += std::string(missing.empty() ? "" : ", ") + table->name;
  }
  if (!missing.empty()) GTEST_SKIP() << "NOT RUN: this CPU lacks the instruction set " << missing;
}

std::string default_model() {
  if (const char* path = std::getenv("INVAR_MODEL")) return path;
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  const std::string root =
      cache != nullptr && *cache != 0 ? cache : std::string(home != nullptr ? home : "") + "/.cache";
  return root + "/invar/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

TEST(SmolLM2, crowd_equals_alone_in_every_pair_of_settings) {
  const std::string path = default_model();
  ASSERT_TRUE(std::filesystem::exists(path))
      << path << " is missing: `./invar run hello` fetches it, or set INVAR_MODEL to a GGUF file";
  const auto model = load(path);
  ASSERT_NE(model, nullptr);
  const std::vector<int32_t> lengths = {4, 9, 2, 5, 13, 3, 66, 1, 6, 3, 2, 5};
  Crowd crowd(model, make_prompts(model->info().vocab, lengths, 3, 0));
  auto sets = instruction_sets();
  std::erase(sets, kPortable);
  crowd.run_alone({sets.back(), 1, 0, 0});
  for (const Setting& setting : pairwise(sets)) {
    const auto before = std::chrono::steady_clock::now();
    auto engine = crowd.engine(setting);
    crowd.run_together(*engine, setting);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - before;
    std::printf("%6.1f s: %s\n", took.count(), setting.name().c_str());
    std::fflush(stdout);
  }
  crowd.expect_equal();
}

TEST(SmolLM2, crowd_without_hardware_fma_equals_alone) {
  const auto model = load(default_model());
  ASSERT_NE(model, nullptr);
  Crowd crowd(model, make_prompts(model->info().vocab, {2, 1, 3, 2, 1, 2, 1, 3}, 2, 0, 8));
  crowd.run_alone({instruction_sets().back(), 1, 0, 0});
  const Setting setting{kPortable, 2, 1, kOrderSeeds[0]};
  crowd.run_together(*crowd.engine(setting), setting);
  crowd.expect_equal();
}

}  // namespace
}  // namespace invar
