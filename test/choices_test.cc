// Several choices of one prompt, on real models through the CPU backend: each is, token for token and bit for
// bit in its log-probabilities, the answer that its sample index gets alone, in a crowd of other prompts, cut
// into any chunks, with any number of threads, also with too few pages for all, and beside choices that are
// cancelled.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/hash.h"
#include "engine/engine.h"
#include "kernels/kernel_table.h"
#include "models/model.h"

namespace invar {
namespace {

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<uint64_t> scores;  // hashes of the bits of log-probability and alternatives
  FinishReason finish = FinishReason::kNone;
};

struct Asked {
  GenerateRequest make(int32_t index) const {
    GenerateRequest r;
    r.prompt = prompt;
    r.max_tokens = max_tokens;
    r.sampling = sampling;
    r.sampling.sample_index = uint32_t(index);
    return r;
  }
  std::vector<int32_t> prompt;
  int32_t max_tokens = 0, choices = 0;
  SamplingParams sampling;
};

// Prompts that end within a page, at its end and at its start.
std::vector<Asked> make_groups(int32_t vocab) {
  std::mt19937 random(20260802);
  std::vector<Asked> groups;
  int32_t choices = 2;
  for (const int32_t length : {1, 37, 64, 100, 65, 128, 150}) {
    Asked g{{}, 30 + int32_t(random() % 40), choices, {}};
    choices = choices == 5 ? 2 : choices + 1;
    for (int32_t i = 0; i < length; ++i)
      g.prompt.push_back(int32_t(random() % uint32_t(vocab)));
    g.sampling.seed = random();
    g.sampling.logprobs = 20;
    if (length % 2 == 0) g.sampling.repetition_penalty = 1.2f;
    groups.push_back(std::move(g));
  }
  return groups;
}

Answer taken(Stream& stream) {
  Answer answer;
  while (auto event = stream.try_next()) {
    if (event->token) {
      answer.tokens.push_back(*event->token);
      answer.scores.push_back(hash64(std::as_bytes(std::span(&event->logprob, 1))));
      answer.scores.push_back(hash64(std::as_bytes(std::span(event->alternatives))));
    }
    answer.finish = event->finish;
  }
  return answer;
}

class Choices : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto loaded = Model::load(std::string(INVAR_TEST_DATA) + "/oracles/models/" + GetParam(),
                              {.cache_dir = "", .threads = 0, .progress = false});
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    model_ = *loaded;
    groups_ = make_groups(model_->info().vocab);
    const auto one = engine({.context = 256, .memory_bytes = uint64_t{64} << 20}, 1, "");
    for (const Asked& g : groups_)
      for (int32_t i = 0; i < g.choices; ++i) {
        auto stream = one->submit(g.make(i));
        ASSERT_TRUE(stream.ok());
        while (one->step()) {
        }
        alone_.push_back(taken(**stream));
        ASSERT_EQ(alone_.back().finish, FinishReason::kLength);
      }
    const EngineStats stats = one->stats();
    page_bytes_ = stats.kv_bytes_total / uint64_t(stats.pages_total);
  }

  std::unique_ptr<Engine> engine(const EngineOptions& options, int threads, const std::string& isa) const {
    auto backend = make_cpu_backend({.threads = threads, .isa = isa});
    EXPECT_TRUE(backend.ok()) << backend.status().message();
    auto created = Engine::create(model_, std::move(*backend), options);
    EXPECT_TRUE(created.ok()) << created.status().message();
    return std::move(*created);
  }

  // All groups, one more before each step; of every `cancelled`-th choice no more than a beginning is wanted.
  void expect_as_alone(Engine& engine, size_t cancelled = 0) const {
    std::vector<std::shared_ptr<Stream>> streams;
    std::vector<bool> gone;
    for (size_t next = 0, step = 0; engine.step() || next < groups_.size(); ++step) {
      if (next < groups_.size()) {
        const Asked& g = groups_[next++];
        auto submitted = engine.submit(g.make(0), g.choices);
        ASSERT_TRUE(submitted.ok()) << submitted.status().message();
        streams.insert(streams.end(), submitted->begin(), submitted->end());
        gone.resize(streams.size());
      }
      const size_t victim = step * 5 % streams.size();
      if (cancelled > 0 && victim % cancelled == 0) streams[victim]->cancel(), gone[victim] = true;
    }
    ASSERT_EQ(streams.size(), alone_.size());
    int64_t stopped = 0;
    for (size_t i = 0; i < streams.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "stream " << i);
      Answer got = taken(*streams[i]), want = alone_[i];
      stopped += got.finish == FinishReason::kCancelled;
      if (gone[i] && got.finish == FinishReason::kCancelled) {
        ASSERT_LE(got.tokens.size(), want.tokens.size());
        want.tokens.resize(got.tokens.size());
        want.scores.resize(got.scores.size());
        want.finish = FinishReason::kCancelled;
      }
      EXPECT_EQ(got.tokens, want.tokens);
      EXPECT_EQ(got.scores, want.scores);
      EXPECT_EQ(got.finish, want.finish);
    }
    if (cancelled > 0) EXPECT_GT(stopped, 0);
    EXPECT_EQ(engine.stats().pages_used, 0);
  }

  int64_t prompt_tokens() const {
    int64_t n = 0;
    for (const Asked& g : groups_)
      n += int64_t(g.prompt.size());
    return n;
  }

  std::shared_ptr<const Model> model_;
  std::vector<Asked> groups_;
  std::vector<Answer> alone_;
  uint64_t page_bytes_ = 0;
};

TEST_P(Choices, differ_from_each_other) {
  EXPECT_NE(alone_[0].tokens, alone_[1].tokens);
}

TEST_P(Choices, are_those_of_their_sample_index_in_every_setting) {
  for (const KernelTable* table : kernel_tables()) {
    if (!cpu_supports(*table)) continue;
    for (const int threads : {1, 2, 3})
      for (const int32_t chunk : {1, 7, 64, 0}) {
        SCOPED_TRACE(testing::Message() << table->name << ", threads " << threads << ", chunk " << chunk);
        const auto crowd =
            engine({.context = 256, .memory_bytes = uint64_t{64} << 20, .prefill_chunk = chunk}, threads,
                   table->name);
        expect_as_alone(*crowd);
        EXPECT_EQ(crowd->stats().prompt_tokens, prompt_tokens()) << "each prompt once, not once per choice";
        EXPECT_EQ(crowd->stats().recomputed_tokens, 0);
      }
  }
}

TEST_P(Choices, stay_the_same_when_pages_run_out_and_neighbours_are_cancelled) {
  for (const size_t cancelled : {0, 3})
    for (const int32_t chunk : {7, 0}) {
      SCOPED_TRACE(testing::Message() << "chunk " << chunk << ", cancelled " << cancelled);
      const auto crowd =
          engine({.context = 256, .memory_bytes = 7 * page_bytes_, .prefill_chunk = chunk}, 2, "");
      ASSERT_LE(crowd->stats().pages_total, 7);
      expect_as_alone(*crowd, cancelled);
      EXPECT_GT(crowd->stats().preemptions, 0);
    }
}

INSTANTIATE_TEST_SUITE_P(Models, Choices, testing::Values("llama-untied", "qwen3-qknorm"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace invar
