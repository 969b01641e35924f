#include "engine/step_sampler.h"

#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/admission.h"
#include "engine/testing/engine_fixture.h"
#include "kv/page_pool.h"
#include "kv/prefix_cache.h"

namespace invar {
namespace {

constexpr float kBad = 77.0f;  // as the first logit: the kernels throw

int64_t throwing_argmax(const float* x, int64_t n) {
  if (x[0] == kBad) throw std::runtime_error("bad row");
  return plain_argmax(x, n);
}
constexpr RowKernels rows_that_throw() {
  RowKernels rows = kPlainRows;
  rows.argmax = throwing_argmax;
  return rows;
}
constexpr RowKernels kThrowingRows = rows_that_throw();

// Threads that all take part: thread t has the tasks t, t + threads, ...
class ThreadedBackend : public FakeBackend {
 public:
  explicit ThreadedBackend(int threads) : FakeBackend(nullptr), threads_(threads) {}
  const RowKernels& row_kernels() const override { return kThrowingRows; }
  int threads() const override { return threads_; }
  void run_tasks(int64_t tasks, FunctionRef<void(int64_t task, int thread)> fn) override {
    std::vector<std::thread> threads;
    for (int t = 0; t < threads_; ++t)
      threads.emplace_back([=, this] {
        for (int64_t task = t; task < tasks; task += threads_)
          fn(task, t);
      });
    for (std::thread& thread : threads)
      thread.join();
  }

 private:
  int threads_;
};

// Says which thread asks, and how often; allows the ids that 5 divides.
class AskedGuard : public Guard {
 public:
  struct Log {
    std::vector<std::thread::id> askers;
  };
  explicit AskedGuard(std::shared_ptr<Log> log) : log_(std::move(log)) {}
  bool mask(std::span<uint32_t> words) override {
    log_->askers.push_back(std::this_thread::get_id());
    for (int32_t id = 0; id < kFakeVocab; id += 5)
      words[size_t(id / 32)] |= 1u << id % 32;
    return true;
  }
  Verdict accept(int32_t) override { return {}; }
  std::unique_ptr<Guard> clone() const override { return std::make_unique<AskedGuard>(*this); }

 private:
  std::shared_ptr<Log> log_;
};

SamplingParams params_of(size_t index) {
  const SamplingParams kinds[] = {{},
                                  {.temperature = 0},
                                  {.temperature = 0.7f, .top_k = 20, .top_p = 0.9f},
                                  {.presence_penalty = 1, .repetition_penalty = 1.4f},
                                  {.typical_p = 0.8f},
                                  {.temperature = 1.3f, .dry_multiplier = 2, .dry_allowed_length = 1},
                                  {.mirostat = 2, .mirostat_tau = 2}};
  SamplingParams params = kinds[index % std::size(kinds)];
  params.seed = index;
  params.logprobs = 2;
  return params;
}

// Sequences that are about to choose, each with logits of its own.
class StepSamplerTest : public testing::Test {
 protected:
  StepSamplerTest() {
    const EngineOptions options{.memory_bytes = uint64_t{1} << 20};
    auto plan = plan_pool(fake_graph(), *find_kv_codec("f16"), 64, options, 0);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    placements_ = std::move(plan->placements);
    pool_ = std::move(*PagePool::create(plan->classes));
    prefixes_ = std::make_unique<PrefixCache>(pool_.get(), placements_, 0);
  }

  Sequence& add(std::unique_ptr<Guard> guard = nullptr) {
    const size_t index = sequences_.size();
    GenerateRequest r;
    for (uint64_t i = 0; i < 12; ++i)
      r.prompt.push_back(int32_t(fake_mix(index * 100 + i) % 6));
    r.max_tokens = 10;
    r.sampling = params_of(index);
    r.guard = std::move(guard);
    auto sequence = std::make_unique<Sequence>(std::move(r), std::make_shared<Stream>(), 0, prefixes_.get(),
                                               KvCache(pool_.get(), placements_), 64);
    EXPECT_TRUE(sequence->cache().reserve(sequence->pending()));
    sequence->cache().commit(sequence->pending());
    EXPECT_TRUE(sequence->chooses());
    std::vector<float>& logits = logits_.emplace_back(size_t(kFakeVocab));
    for (size_t v = 0; v < logits.size(); ++v)
      logits[v] = float(fake_mix(index * 1000 + v) >> 40) * 0x1p-21f;
    sequences_.push_back(std::move(sequence));
    return *sequences_.back();
  }
  void add_many(size_t n) {
    for (size_t i = 0; i < n; ++i)
      add(i % 4 == 3 ? std::make_unique<AskedGuard>(log_) : nullptr);
  }

  struct Chosen {
    std::vector<const Sequence*> order;
    std::vector<Result<Choice>> choices;
  };
  Chosen choose(StepSampler& sampler) {
    Chosen chosen;
    for (size_t i = 0; i < sequences_.size(); ++i)
      sampler.add(*sequences_[i], logits_[i]);
    sampler.choose([&](Sequence& sequence, Result<Choice> choice) {
      chosen.order.push_back(&sequence);
      chosen.choices.push_back(std::move(choice));
    });
    return chosen;
  }
  // By a sampler that never met another row.
  Choice alone(size_t index) {
    Sampler sampler(kPlainRows);
    const Sequence& sequence = *sequences_[index];
    const auto mask = sequence.mask((size_t(kFakeVocab) + 31) / 32);
    auto choice = sampler.choose(sequence.sample_input(logits_[index], mask));
    EXPECT_TRUE(choice.ok()) << choice.status().message();
    return std::move(*choice);
  }
  void expect_as_alone(size_t index, const Result<Choice>& choice) {
    ASSERT_TRUE(choice.ok()) << index << ": " << choice.status().message();
    const Choice expected = alone(index);
    EXPECT_EQ(choice->token, expected.token) << index;
    EXPECT_EQ(choice->logprob, expected.logprob) << index;
    EXPECT_EQ(choice->mirostat_mu, expected.mirostat_mu) << index;
    ASSERT_EQ(choice->alternatives.size(), 2u) << index;
    EXPECT_EQ(choice->alternatives[1].token, expected.alternatives[1].token) << index;
  }

  std::vector<KvPlacement> placements_;
  std::unique_ptr<PagePool> pool_;
  std::unique_ptr<PrefixCache> prefixes_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::vector<std::vector<float>> logits_;
  std::shared_ptr<AskedGuard::Log> log_ = std::make_shared<AskedGuard::Log>();
};

TEST_F(StepSamplerTest, rows_choose_what_they_would_alone_on_any_number_of_threads) {
  add_many(29);
  for (const int threads : {1, 2, 5, 40}) {
    ThreadedBackend backend(threads);
    StepSampler sampler(&backend, kFakeVocab);
    for (int step = 0; step < 3; ++step) {
      const Chosen chosen = choose(sampler);
      ASSERT_EQ(chosen.order.size(), sequences_.size());
      for (size_t i = 0; i < sequences_.size(); ++i) {
        EXPECT_EQ(chosen.order[i], sequences_[i].get()) << "in the order of add()";
        expect_as_alone(i, chosen.choices[i]);
      }
    }
  }
}

TEST_F(StepSamplerTest, a_row_whose_sampling_throws_fails_alone) {
  add_many(12);
  logits_[5][0] = kBad;
  ThreadedBackend backend(3);
  StepSampler sampler(&backend, kFakeVocab);
  for (int step = 0; step < 2; ++step) {
    const Chosen chosen = choose(sampler);
    ASSERT_EQ(chosen.choices.size(), 12u);
    for (size_t i = 0; i < 12; ++i) {
      if (i != 5) expect_as_alone(i, chosen.choices[i]);
    }
    ASSERT_FALSE(chosen.choices[5].ok());
    EXPECT_EQ(chosen.choices[5].status().code(), Code::kInternal);
    EXPECT_NE(chosen.choices[5].status().message().find("bad row"), std::string::npos);
  }
}

TEST_F(StepSamplerTest, guards_are_asked_once_a_step_by_the_caller_s_thread) {
  add_many(16);
  ThreadedBackend backend(4);
  StepSampler sampler(&backend, kFakeVocab);
  const Chosen chosen = choose(sampler);
  EXPECT_EQ(log_->askers, std::vector(4, std::this_thread::get_id()));
  for (const size_t i : {3u, 7u, 11u, 15u})
    EXPECT_EQ(chosen.choices[i]->token % 5, 0) << "as the guard allows";
}

TEST_F(StepSamplerTest, what_has_ended_does_not_choose_and_rows_do_not_stay) {
  add_many(6);
  sequences_[2]->finish(FinishReason::kCancelled);
  ThreadedBackend backend(2);
  StepSampler sampler(&backend, kFakeVocab);
  const Chosen chosen = choose(sampler);
  EXPECT_EQ(chosen.order.size(), 5u);
  for (const Sequence* sequence : chosen.order)
    EXPECT_NE(sequence, sequences_[2].get());
  sampler.choose([](Sequence&, Result<Choice>) { FAIL() << "nobody was added"; });
}

}  // namespace
}  // namespace invar
