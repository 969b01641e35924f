// The engine on a virtual clock: what the scheduler promises, against stated costs of steps. Nothing here
// reads the machine's clock, so a run is the same everywhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <random>

#include "backends/scripted/scripted_backend.h"
#include "base/testing/reduced.h"
#include "engine/engine.h"
#include "engine/rank.h"
#include "engine/step_trace.h"

namespace invar {
namespace {

constexpr int32_t kVocab = 64;
constexpr uint64_t kPageBytes = 512;  // of the scripted model's keys and values in f32
constexpr int64_t kMs = 1'000'000, kSecond = 1'000 * kMs;

class VirtualClock : public Clock {
 public:
  int64_t now_ns() const override { return now_; }
  void advance(int64_t ns) { now_ += ns; }
  void advance_to(int64_t ns) { now_ = std::max(now_, ns); }

 private:
  int64_t now_ = kSecond;
};

// Of a step: once, per token, per position that a token reads, and per row of logits.
struct Costs {
  double step_ns, token_ns, read_ns, logit_ns;
};
// A small model on two cores, one whose attention is dear, one that costs about the same however little a
// step does, and one of whose prompts less than a page fits into the usual stall.
constexpr Costs kSmall{2e6, 0.4e6, 100, 0.8e6}, kFarReading{2e6, 0.2e6, 2000, 0.5e6},
    kHeavy{60e6, 0.5e6, 100, 0.5e6}, kSlow{2e6, 4e6, 100, 0.8e6};

class CostlyExecutable : public Executable {
 public:
  CostlyExecutable(std::unique_ptr<Executable> inner, Costs costs, VirtualClock* clock)
      : inner_(std::move(inner)), costs_(costs), clock_(clock) {}
  StepOutputs run(const StepInputs& in) override {
    double reads = 0;
    for (const SequenceRows& rows : in.sequences)
      for (int32_t i = 0; i < rows.rows; ++i)
        reads += rows.first_position + i + 1;
    clock_->advance(int64_t(costs_.step_ns + costs_.token_ns * double(in.tokens.size()) +
                            costs_.read_ns * reads + costs_.logit_ns * double(in.logit_rows.size())));
    return inner_->run(in);
  }
  size_t scratch_bytes() const override { return 0; }

 private:
  std::unique_ptr<Executable> inner_;
  Costs costs_;
  VirtualClock* clock_;
};

class CostlyBackend : public Backend {
 public:
  CostlyBackend(Costs costs, VirtualClock* clock)
      : inner_(make_scripted_backend()), costs_(costs), clock_(clock) {}
  std::string name() const override { return "simulated"; }
  bool supports(const KvCodec&) const override { return true; }
  const RowKernels& row_kernels() const override { return inner_->row_kernels(); }
  Result<std::unique_ptr<Executable>> compile(const Graph& graph, const WeightSet& weights,
                                              const ExecutableLimits& limits) override {
    ASSIGN_OR_RETURN(auto inner, inner_->compile(graph, weights, limits));
    return std::unique_ptr<Executable>(std::make_unique<CostlyExecutable>(std::move(inner), costs_, clock_));
  }

 private:
  std::unique_ptr<Backend> inner_;
  Costs costs_;
  VirtualClock* clock_;
};

struct Job {
  int64_t at_ms = 0;
  int32_t prompt = 10, max_tokens = 10;
  uint64_t tenant = 0;
  int32_t priority = 0;
  int64_t cancel_after_ms = -1;
};

struct Outcome {
  bool refused = false;
  FinishReason finish = FinishReason::kNone;
  int32_t tokens = 0;
  int64_t first_ns = 0, last_ns = 0;  // from the start of the simulation
  int64_t wait_ns = 0;                // from arrival to the first token
  std::vector<int64_t> gaps_ns;       // between tokens
};

EngineOptions options_of(int32_t pages = 4096) {
  EngineOptions o;
  o.kv = "f32";
  o.context = 4096;
  o.memory_bytes = uint64_t(pages) * kPageBytes;
  return o;
}

class Simulation {
 public:
  Simulation(Costs costs, EngineOptions options) : model_(make_scripted_model(kVocab)) {
    options.clock = &clock_;
    auto made = Engine::create(EngineModel{&model_->graph, &model_->weights, 8192, 0, model_},
                               std::make_unique<CostlyBackend>(costs, &clock_), options);
    EXPECT_TRUE(made.ok()) << made.status().message();
    engine_ = std::move(*made);
    if (const char* path = std::getenv("INVAR_STEP_TRACE")) file_.open(path, std::ios::app);
    engine_->set_trace([this](const StepRecord& step) {
      trace.push_back(step);
      if (file_.is_open()) file_ << step_json(step) << '\n';
    });
  }

  // Until every job has ended; they are given in the order of their arrival.
  std::vector<Outcome> run(const std::vector<Job>& jobs) {
    std::vector<Outcome> outcomes(jobs.size());
    std::vector<std::pair<size_t, std::shared_ptr<Stream>>> live;
    const int64_t start = clock_.now_ns();
    size_t next = 0;
    while (next < jobs.size() || !live.empty()) {
      while (next < jobs.size() && start + jobs[next].at_ms * kMs <= clock_.now_ns()) {
        if (auto stream = submit(jobs[next], next)) {
          live.emplace_back(next, std::move(stream));
        } else {
          outcomes[next].refused = true;
        }
        ++next;
      }
      for (auto& [index, stream] : live) {
        const Job& job = jobs[index];
        if (job.cancel_after_ms >= 0 && start + (job.at_ms + job.cancel_after_ms) * kMs <= clock_.now_ns())
          stream->cancel();
      }
      if (!engine_->step() && next < jobs.size()) clock_.advance_to(start + jobs[next].at_ms * kMs);
      std::erase_if(live, [&](auto& entry) {
        Outcome& outcome = outcomes[entry.first];
        collect(*entry.second, start, &outcome);
        outcome.wait_ns = outcome.first_ns - jobs[entry.first].at_ms * kMs;
        return outcome.finish != FinishReason::kNone;
      });
    }
    return outcomes;
  }

  EngineStats stats() const { return engine_->stats(); }
  std::vector<StepRecord> trace;

 private:
  std::shared_ptr<Stream> submit(const Job& job, size_t index) {
    GenerateRequest r;
    std::mt19937 random(static_cast<uint32_t>(index));
    for (int32_t i = 0; i < job.prompt; ++i)
      r.prompt.push_back(int32_t(random() % kVocab));
    r.max_tokens = job.max_tokens;
    r.sampling.temperature = 0;
    r.tenant = job.tenant;
    r.priority = job.priority;
    auto stream = engine_->submit(std::move(r));
    if (stream.ok()) return std::move(*stream);
    EXPECT_EQ(stream.status().code(), Code::kResourceExhausted) << stream.status().message();
    return nullptr;
  }

  static void collect(Stream& stream, int64_t start, Outcome* outcome) {
    while (auto event = stream.try_next()) {
      outcome->finish = event->finish;
      if (!event->token) continue;
      const int64_t now = event->published_ns - start;
      if (outcome->tokens++ == 0) {
        outcome->first_ns = now;
      } else {
        outcome->gaps_ns.push_back(now - outcome->last_ns);
      }
      outcome->last_ns = now;
    }
  }

  VirtualClock clock_;
  std::shared_ptr<const ScriptedModel> model_;
  std::ofstream file_;
  std::unique_ptr<Engine> engine_;
};

int64_t longest_gap(const Outcome& outcome) {
  return *std::max_element(outcome.gaps_ns.begin(), outcome.gaps_ns.end());
}

TEST(Simulation, ten_thousand_requests_end_and_every_page_comes_back) {
  const int32_t count = reduced_tests() ? 1000 : 10000;
  EngineOptions options = options_of(300);
  options.max_stall_ms = 200;
  options.prefix_cache_bytes = 60 * kPageBytes;
  Simulation simulation(kSmall, options);
  std::mt19937 random(1);
  const auto between = [&](int32_t low, int32_t high) {
    return low + int32_t(random() % uint32_t(high - low + 1));
  };
  std::vector<Job> jobs;
  int64_t at_ms = 0;
  for (int32_t i = 0; i < count; ++i) {
    at_ms += i % 500 < 100 ? 0 : between(0, 300);  // with bursts of a hundred
    Job job{at_ms, between(1, 100), between(1, 60), uint64_t(between(0, 3)), between(-3, 3)};
    if (between(0, 19) == 0) job.prompt = between(500, 3000);
    if (between(0, 19) == 0) job.max_tokens = between(200, 1000);
    if (between(0, 9) == 0) job.cancel_after_ms = between(0, 2000);
    jobs.push_back(job);
  }
  const std::vector<Outcome> outcomes = simulation.run(jobs);
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (outcomes[i].finish == FinishReason::kCancelled) {
      EXPECT_GE(jobs[i].cancel_after_ms, 0);
    } else {
      ASSERT_EQ(outcomes[i].finish, FinishReason::kLength) << i;
      ASSERT_EQ(outcomes[i].tokens, jobs[i].max_tokens) << i;
    }
  }
  int64_t preempted = 0, cut = 0, mixed = 0, most_used = 0;
  for (const StepRecord& step : simulation.trace) {
    preempted += step.preempted, cut += step.cut_prompts, mixed += step.mixed();
    most_used = std::max(most_used, step.pages_used);
    ASSERT_LE(step.pages_used + step.pages_idle, 300);
    ASSERT_LE(step.pages_idle, 60);
  }
  EXPECT_GT(preempted, count / 1000);
  EXPECT_GT(cut, count / 100);
  EXPECT_GT(mixed, count / 10);
  EXPECT_EQ(simulation.stats().pages_total, 300);
  EXPECT_GT(most_used, 285) << "no pressure";
  EXPECT_EQ(simulation.stats().pages_used, 0);
  EXPECT_EQ(simulation.stats().live, 0);
}

// Sixteen streams run, and prompts of 2,000 tokens come.
struct StallCase {
  const char* name;
  Costs costs;
  int32_t max_stall_ms;
};
class Stall : public testing::TestWithParam<StallCase> {};

TEST_P(Stall, prompts_pause_streams_no_longer_than_they_may) {
  const StallCase& c = GetParam();
  std::vector<Job> jobs;
  for (int32_t i = 0; i < 16; ++i)
    jobs.push_back({0, 100, 1500});
  const size_t streams = jobs.size();
  for (int32_t i = 0; i < 4; ++i)
    jobs.push_back({20'000 + 7'000 * i, 2000, 5});
  for (int32_t i = 0; i < 3; ++i)
    jobs.push_back({60'000, 2000, 5});
  EngineOptions options = options_of();
  options.max_stall_ms = c.max_stall_ms;
  Simulation simulation(c.costs, options);
  const std::vector<Outcome> outcomes = simulation.run(jobs);

  int64_t decode_ns = 0;  // the longest step without a prompt
  int64_t prompt_tokens = 0, steps = 0;
  for (const StepRecord& step : simulation.trace) {
    if (step.prompt_rows == 0) decode_ns = std::max(decode_ns, step.total_ns);
    if (step.mixed()) prompt_tokens += step.prompt_tokens, ++steps;
  }
  for (size_t i = 0; i < streams; ++i)
    EXPECT_LE(longest_gap(outcomes[i]), c.max_stall_ms * kMs + decode_ns) << i;
  for (size_t i = streams; i < jobs.size(); ++i)
    EXPECT_EQ(outcomes[i].tokens, 5);
  // And what may be used is used: the prompts took at least two fifths of the pauses that they were allowed.
  EXPECT_GT(steps, 0);
  const double price = c.costs.token_ns + c.costs.read_ns * 1000;
  EXPECT_GT(double(prompt_tokens) / double(steps),
            std::min(512.0 - 16, double(c.max_stall_ms * kMs) / price) * 0.4);
}
INSTANTIATE_TEST_SUITE_P(Costs, Stall,
                         testing::Values(StallCase{"small", kSmall, 200},
                                         StallCase{"small_tight", kSmall, 20},
                                         StallCase{"far_reading", kFarReading, 200},
                                         StallCase{"heavy", kHeavy, 200},
                                         StallCase{"heavy_tight", kHeavy, 70}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Simulation, without_a_bound_a_prompt_takes_the_whole_step) {
  std::vector<Job> jobs{{0, 100, 500}, {1000, 2000, 5}};
  Simulation simulation(kSmall, options_of());
  EXPECT_GT(longest_gap(simulation.run(jobs)[0]), 200 * kMs);
}

TEST(Simulation, a_stall_of_one_decode_step_keeps_gaps_below_twice_the_median) {
  std::vector<Job> jobs;
  for (int32_t i = 0; i < 16; ++i)
    jobs.push_back({0, 100, 1000});
  jobs.push_back({10'000, 2000, 5});
  EngineOptions options = options_of();
  options.max_stall_ms = 21;  // 16 rows of kSmall
  Simulation simulation(kSmall, options);
  const std::vector<Outcome> outcomes = simulation.run(jobs);
  std::vector<int64_t> gaps;
  for (size_t i = 0; i < 16; ++i)
    gaps.insert(gaps.end(), outcomes[i].gaps_ns.begin(), outcomes[i].gaps_ns.end());
  std::sort(gaps.begin(), gaps.end());
  EXPECT_LT(gaps[gaps.size() * 99 / 100], 2 * gaps[gaps.size() / 2]);
}

TEST(Simulation, a_short_prompt_does_not_wait_for_a_long_one) {
  const auto wait_of_short = [](const Costs& costs, int32_t prompt, bool with_long) {
    std::vector<Job> jobs{{0, 20, 800}, {2500, prompt, 5}};
    if (with_long) jobs.insert(jobs.begin() + 1, {2000, 4000, 5});
    EngineOptions options = options_of();
    options.max_stall_ms = 200;
    Simulation simulation(costs, options);
    return simulation.run(jobs).back().wait_ns;
  };
  // A step of the long one may be running when it comes, and its own tokens have the half of the next ones.
  EXPECT_LT(wait_of_short(kSmall, 50, true), wait_of_short(kSmall, 50, false) + 2 * 220 * kMs);
  EXPECT_LT(wait_of_short(kSlow, 12, true), wait_of_short(kSlow, 12, false) + 2 * 220 * kMs);
  // However little a step has room for, the short one has at least a quarter of it.
  for (const int32_t prompt : {18, 20, 36, 64, 100, 200})
    EXPECT_LT(wait_of_short(kSlow, prompt, true), 4 * wait_of_short(kSlow, prompt, false) + 2 * 220 * kMs)
        << prompt;
}

TEST(Simulation, priority_moves_shares_within_a_key_only) {
  const auto wait_of_other = [](int32_t priority) {
    EngineOptions options = options_of();
    options.max_stall_ms = 100;
    std::vector<Job> jobs{{0, 20, 2000, 1}, {2000, 3000, 5, 1, priority}, {2000, 3000, 5, 2}};
    Simulation simulation(kSmall, options);
    return simulation.run(jobs).back().wait_ns;
  };
  EXPECT_EQ(wait_of_other(-4), wait_of_other(0));
}

TEST(Simulation, a_tenant_with_many_requests_does_not_hold_up_another) {
  EngineOptions options = options_of();
  options.max_batch = 4;
  std::vector<Job> jobs;
  for (int32_t i = 0; i < 200; ++i)
    jobs.push_back({0, 50, 50, 1});
  jobs.push_back({1000, 50, 50, 2});
  Simulation fair(kSmall, options);
  const Outcome other = fair.run(jobs).back();
  // It gets the next place that becomes free: within the life of one answer.
  EXPECT_LT(other.wait_ns, 50 * 8 * kMs + kSecond / 10);

  jobs.back().tenant = 1;
  Simulation alone(kSmall, options);
  EXPECT_GT(alone.run(jobs).back().wait_ns, 10 * kSecond) << "there was no queue to pass";
}

TEST(Simulation, tenants_have_equal_parts_however_much_they_ask_for) {
  EngineOptions options = options_of();
  options.max_batch = 8;
  std::vector<Job> jobs;
  for (int32_t i = 0; i < 400; ++i)
    jobs.push_back({0, 50, 50, i % 10 == 0 ? 2u : 1u});
  Simulation simulation(kSmall, options);
  const std::vector<Outcome> outcomes = simulation.run(jobs);
  int64_t end_of_two = 0;
  for (size_t i = 0; i < jobs.size(); ++i)
    if (jobs[i].tenant == 2) end_of_two = std::max(end_of_two, outcomes[i].last_ns);
  int32_t of_one = 0;
  for (size_t i = 0; i < jobs.size(); ++i)
    of_one += jobs[i].tenant == 1 && outcomes[i].last_ns <= end_of_two;
  EXPECT_NEAR(of_one, 40, 8) << "while the 40 of the small one ran";
}

TEST(Simulation, priority_goes_first_and_nobody_waits_for_ever) {
  EngineOptions options = options_of();
  options.max_batch = 2;
  std::vector<Job> jobs;
  for (int32_t i = 0; i < 450; ++i)  // more than can be served, all ahead of the ones to come
    jobs.push_back({i * 400, 20, 20, 0, -5});
  jobs.push_back({40'000, 20, 20, 0, 0});
  jobs.push_back({40'000, 20, 20, 0, -100});
  std::sort(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) { return a.at_ms < b.at_ms; });
  Simulation simulation(kHeavy, options);
  const std::vector<Outcome> outcomes = simulation.run(jobs);
  int64_t queue = 0;  // of those that come with them
  for (size_t i = 0; i < jobs.size(); ++i)
    if (jobs[i].at_ms == 40'000 - 400) queue = outcomes[i].wait_ns;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i].priority == -100) {
      EXPECT_LT(outcomes[i].wait_ns, 2 * kSecond);
    }
    if (jobs[i].priority == 0) {
      EXPECT_GT(outcomes[i].wait_ns, 5 * kPriorityStepNs);
      EXPECT_LT(outcomes[i].first_ns, outcomes.back().last_ns) << "served while others still come";
    }
  }
  EXPECT_GT(queue, 5 * kSecond);
}

TEST(Simulation, who_would_wait_too_long_is_refused_and_who_is_accepted_does_not) {
  EngineOptions options = options_of();
  options.max_batch = 4;
  options.max_wait_s = 5;
  std::vector<Job> jobs;
  for (int32_t i = 0; i < 3000; ++i)
    jobs.push_back({i * 20, 50, 40});
  jobs.push_back({200'000, 50, 40});
  Simulation simulation(kSmall, options);
  const std::vector<Outcome> outcomes = simulation.run(jobs);
  int32_t refused = 0, accepted = 0;
  for (const Outcome& outcome : outcomes) {
    refused += outcome.refused;
    if (outcome.refused) continue;
    ++accepted;
    EXPECT_EQ(outcome.tokens, 40);
    EXPECT_LT(outcome.wait_ns, 6 * kSecond);
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(accepted, 100);
  EXPECT_FALSE(outcomes.back().refused) << "when the rush is over";
  EXPECT_EQ(simulation.stats().predicted_wait_s, 0);
}

TEST(Simulation, a_run_repeats_itself_step_by_step) {
  std::vector<std::string> traces[2];
  for (auto& trace : traces) {
    EngineOptions options = options_of(600);
    options.max_stall_ms = 100;
    Simulation simulation(kSmall, options);
    std::vector<Job> jobs;
    for (int32_t i = 0; i < 200; ++i)
      jobs.push_back({i * 10, 1 + i * 37 % 300, 1 + i * 17 % 90, uint64_t(i % 3)});
    simulation.run(jobs);
    for (const StepRecord& step : simulation.trace)
      trace.push_back(step_json(step));
  }
  EXPECT_EQ(traces[0], traces[1]);
}

}  // namespace
}  // namespace invar
