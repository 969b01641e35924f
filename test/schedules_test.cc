// The contract of the engine over random schedules (docs/numerics.md): what a request answers, token ids and
// the bits of the logits they came from, is what it answers alone: whatever arrives, ends, is cancelled or
// fails beside it, however steps are cut, whatever the prefix cache holds, when pages run out, with any
// number of threads, codec and window. A schedule is a function of its seed.
//   INVAR_SCHEDULE_SEED=N   runs schedule N alone and tells what it is
//   INVAR_SCHEDULES=N       runs N of them (default 2,000; a nightly run takes 100,000)
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/testing/reduced.h"
#include "base/usable_cores.h"
#include "schedule_models.h"
#include "schedule_requests.h"

namespace invar {
namespace {

// Goes on by up to a millisecond whenever it is read, so that what the engine measures is part of the seed.
class SeededClock : public Clock {
 public:
  explicit SeededClock(uint64_t seed) : random_(seed) {}
  int64_t now_ns() const override { return now_ += random_.between(0, 1'000'000); }

 private:
  mutable ScheduleRandom random_;
  mutable int64_t now_ = 0;
};

// What a schedule does to a request besides running it.
enum class Fate { kRuns, kCancelled, kDropped, kThrows };

struct Live {
  uint64_t number;
  Fate fate = Fate::kRuns;
  std::vector<std::shared_ptr<Stream>> streams;  // one per choice
  std::vector<Answer> said;
  int32_t observed_before_throw = 0;
  std::pair<uint64_t, uint64_t> scope;  // tenant and salt: who may share with it
};

// How often in the run what the schedules are for has happened.
struct Seen {
  int64_t schedules = 0, requests = 0, choices = 0, steps = 0;
  int64_t mixed = 0, cut = 0, hits = 0, followed = 0, preempted = 0, recomputed = 0, forked = 0;
  int64_t cancelled = 0, threw = 0, evicting = 0, tight = 0, tight_and_felt = 0, windowed_hits = 0,
          windowed_preempted = 0, forked_and_preempted = 0, apart = 0;

  void add(const Seen& o) {
    const auto sum = [&](auto... field) { ((this->*field += o.*field), ...); };
    sum(&Seen::schedules, &Seen::requests, &Seen::choices, &Seen::steps, &Seen::mixed, &Seen::cut,
        &Seen::hits, &Seen::followed, &Seen::preempted, &Seen::recomputed, &Seen::forked, &Seen::cancelled,
        &Seen::threw, &Seen::evicting, &Seen::tight, &Seen::tight_and_felt, &Seen::windowed_hits,
        &Seen::windowed_preempted, &Seen::forked_and_preempted, &Seen::apart);
  }
};

class Schedule {
 public:
  Schedule(uint64_t seed, std::vector<std::unique_ptr<ScheduleModel>>& models)
      : seed_(seed), random_(seed), clock_(seed), model_(*models[size_t(seed % models.size())]) {
    do {
      options_.kv = kv_codecs()[size_t(random_.between(0, int32_t(kv_codecs().size()) - 1))].name;
    } while (!model_.supports(*find_kv_codec(options_.kv)));
    options_.context = kLongestScheduled;
    options_.max_step_tokens = random_.pick({3, 17, 40, 64, 96, 200, 512});
    options_.prefill_chunk = random_.pick({0, 0, 1, 7, 63, 64, 65});
    options_.max_logit_rows = random_.pick({3, 8, 64});
    options_.max_batch = random_.pick({3, 5, 16});
    options_.max_stall_ms = random_.pick({0, 0, 1, 20});
    options_.clock = &clock_;
    // A tight pool holds one sequence of the context, or hardly more.
    tight_ = random_.one_in(2);
    const uint64_t one = model_.bytes_of_one(resolved());
    options_.memory_bytes = tight_ ? one * uint64_t(random_.pick({100, 100, 130})) / 100 : one * 30;
    options_.prefix_cache_bytes = random_.pick({uint64_t{0}, one / 2, UINT64_MAX, UINT64_MAX});
    threads_ = random_.pick({1, 1, 1, 1, 2, 3});
    const int32_t count = tight_ ? random_.between(6, 10) : random_.between(2, 9);
    // A few numbers, so that equal requests meet; lone answers are shared by the schedules of a block.
    const uint64_t block = seed / 2000 * kRequestsPerBlock;
    for (int32_t i = 0; i < count; ++i)
      requests_.push_back({.number = block + uint64_t(random_.between(0, kRequestsPerBlock - 1))});
    for (Live& live : requests_)
      if (random_.one_in(6)) live.fate = random_.pick({Fate::kCancelled, Fate::kDropped, Fate::kThrows});
    at_once_ = random_.between(1, count);
  }

  // What went wrong; empty if nothing did.
  std::string run(Seen* seen) {
    engine_ = model_.engine(options_, threads_);
    engine_->set_trace([&](const StepRecord& r) { note(r); });
    size_t next = 0;
    for (int64_t steps = 0;; ++steps) {
      if (steps > 200'000) return describe() + "the requests do not end";
      for (int32_t n = arrivals(next); n > 0 && next < requests_.size(); --n)
        if (std::string error = submit(requests_[next++]); !error.empty()) return describe() + error;
      if (next > 0 && random_.one_in(8)) disturb(requests_[size_t(random_.between(0, int32_t(next) - 1))]);
      if (!engine_->step() && next == requests_.size()) break;
    }
    std::string wrong;
    for (Live& live : requests_)
      wrong += compare(live) + check_sharing(live);
    const EngineStats stats = engine_->stats();
    if (stats.pages_used != 0 || stats.live != 0)
      wrong +=
          fmt::format("  {} pages are used and {} requests live in the end\n", stats.pages_used, stats.live);
    seen_.evicting = stats.prefix_evictions > 0;
    seen_.tight = tight_;
    engine_.reset();  // checks that every page came back, those of the prefix cache too
    count_features();
    seen->add(seen_);
    return wrong.empty() ? wrong : describe() + wrong;
  }

  std::string describe() const {
    std::string text = fmt::format(
        "schedule {} (INVAR_SCHEDULE_SEED={} runs it alone): {}, --kv {}, {} threads, {} tokens per step, "
        "chunk "
        "{}, batch {}, {} logit rows, stall {} ms, {} bytes of pages ({}), prefix cache {}\n",
        seed_, seed_, model_.name(), options_.kv, threads_, options_.max_step_tokens, options_.prefill_chunk,
        options_.max_batch, options_.max_logit_rows, options_.max_stall_ms, options_.memory_bytes,
        tight_ ? "tight" : "plenty", options_.prefix_cache_bytes);
    for (const Live& live : requests_) {
      const ScheduleRequest r = schedule_request(live.number, model_.vocab());
      text += fmt::format("  request {}: {} + {} tokens, {} choices, salt {}{}{}{}{}\n", live.number,
                          r.prompt.size(), r.max_tokens, r.choices, r.salt, r.guarded ? ", guard" : "",
                          r.all_prompt_logits ? ", all logits" : "",
                          r.prompt_logprobs >= 0 ? ", prompt scores" : "",
                          live.fate == Fate::kRuns ? "" : ", disturbed");
    }
    return text;
  }

 private:
  static constexpr int32_t kRequestsPerBlock = 48;

  EngineOptions resolved() const {
    EngineOptions o = options_;
    o.max_step_tokens = std::max(o.max_step_tokens, o.max_batch);
    return o;
  }

  int32_t arrivals(size_t sent) {
    if (sent == 0) return at_once_;
    return random_.one_in(6) ? random_.between(1, 3) : 0;
  }

  std::string submit(Live& live) {
    const ScheduleRequest wanted = schedule_request(live.number, model_.vocab());
    GenerateRequest request = wanted.make();
    request.priority = random_.pick({0, 0, 0, -5, 5});
    request.tenant = random_.pick({0u, 0u, 0u, 0u, 1u});
    live.scope = {request.tenant, request.cache_salt};
    live.said.resize(size_t(wanted.choices));
    live.observed_before_throw = random_.between(0, 20);
    request.on_logits = [&live](int32_t position, std::span<const float> logits) {
      if (live.fate == Fate::kThrows && live.observed_before_throw-- == 0)
        throw std::runtime_error("an observer that fails");
      live.said[0].logits.emplace_back(position, hash64(std::as_bytes(logits)));
    };
    auto streams = engine_->submit(std::move(request), wanted.choices);
    if (!streams.ok()) return "refused: " + streams.status().message();
    live.streams = std::move(*streams);
    ++seen_.requests;
    seen_.choices += wanted.choices;
    seen_.forked += wanted.choices - 1;
    return {};
  }

  // Ends a request that is to end early, or one of its choices.
  void disturb(Live& live) {
    for (auto& stream : live.streams) {
      if (stream == nullptr || (live.streams.size() > 1 && random_.one_in(2))) continue;
      if (live.fate == Fate::kCancelled) stream->cancel();
      if (live.fate == Fate::kDropped) stream.reset();
    }
  }

  void note(const StepRecord& r) {
    ++seen_.steps;
    seen_.mixed += r.mixed();
    seen_.cut += r.cut_prompts > 0;
    seen_.hits += r.reused_tokens > 0;
    seen_.followed += r.following > 0;
    seen_.preempted += r.preempted;
    seen_.recomputed += r.recomputed_rows;
    felt_ = felt_ || r.preempted > 0 || (r.waiting > 0 && r.running < options_.max_batch);
  }

  void count_features() {
    seen_.schedules = 1;
    seen_.tight_and_felt = tight_ && felt_;
    const bool windowed = model_.graph().kv_groups.size() > 1;
    seen_.windowed_hits = windowed && seen_.hits > 0;
    seen_.windowed_preempted = windowed && seen_.preempted > 0;
    seen_.forked_and_preempted = seen_.forked > 0 && seen_.preempted > 0;
  }

  std::string compare(Live& live) {
    std::string wrong;
    for (size_t choice = 0; choice < live.streams.size(); ++choice) {
      const Answer& alone = model_.alone(live.number, int32_t(choice), options_.kv);
      Answer& said = live.said[choice];
      const bool ended = live.streams[choice] != nullptr && collect(*live.streams[choice], &said);
      if (!ended && live.fate != Fate::kDropped) wrong += fmt::format("  request {}: no end\n", live.number);
      seen_.cancelled += said.finish == FinishReason::kCancelled;
      seen_.threw += said.finish == FinishReason::kError;
      // What ends early has said the beginning; a choice shares the observer's fate only by its own rows.
      const bool whole = said.finish == alone.finish;
      const bool early = (live.fate == Fate::kDropped && !ended) ||
                         (live.fate == Fate::kCancelled && said.finish == FinishReason::kCancelled) ||
                         (live.fate == Fate::kThrows && choice == 0 && said.finish == FinishReason::kError);
      const auto check = [&](const char* what, const auto& a, const auto& b) {
        const size_t n = early ? std::min(a.size(), b.size()) : std::max(a.size(), b.size());
        size_t at = 0;
        while (at < n && at < a.size() && at < b.size() && a[at] == b[at])
          ++at;
        if (at < n || a.size() > b.size())
          wrong +=
              fmt::format("  request {}, choice {}: {} differ from the lone run's at {} of {} (has {})\n",
                          live.number, choice, what, at, b.size(), a.size());
      };
      if (!whole && !early)
        wrong += fmt::format("  request {}, choice {}: ends for reason {}, alone for {} {}\n", live.number,
                             choice, int(said.finish), int(alone.finish), said.error.message());
      check("tokens", said.tokens, alone.tokens);
      check("scores", said.scores, alone.scores);
      check("scores of the prompt", said.prompt_scores, alone.prompt_scores);
      if (choice == 0) check("logits", said.logits, alone.logits);
    }
    return wrong;
  }

  // Bits cannot tell whose pages were used, because equal tokens have equal pages; what was reused can.
  std::string check_sharing(const Live& live) {
    const auto mates = std::count_if(requests_.begin(), requests_.end(),
                                     [&](const Live& other) { return other.scope == live.scope; });
    if (mates > 1) return {};
    ++seen_.apart;
    std::string wrong;
    for (const Answer& said : live.said)
      if (said.cached_tokens > 0)
        wrong += fmt::format("  request {}: {} tokens from another tenant or salt\n", live.number,
                             said.cached_tokens);
    return wrong;
  }

  const uint64_t seed_;
  ScheduleRandom random_;
  SeededClock clock_;
  ScheduleModel& model_;
  EngineOptions options_;
  int threads_ = 1;
  bool tight_ = false, felt_ = false;
  int32_t at_once_ = 1;
  std::vector<Live> requests_;
  std::unique_ptr<Engine> engine_;
  Seen seen_;
};

std::optional<uint64_t> number_of_environment(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == 0) return std::nullopt;
  return std::strtoull(text, nullptr, 10);
}

std::vector<std::unique_ptr<ScheduleModel>> all_models() {
  std::vector<std::unique_ptr<ScheduleModel>> models;
  for (const ScheduleModelRow& row : schedule_models())
    models.push_back(std::make_unique<ScheduleModel>(row));
  return models;
}

// Runs schedules [first, first + count), each on one of several threads; stops after a few failures.
Seen run_schedules(uint64_t first, uint64_t count) {
  auto models = all_models();
  std::atomic<uint64_t> next{first};
  std::atomic<int> failures{0};
  std::mutex mutex;
  Seen seen;
  const auto work = [&] {
    Seen mine;
    for (uint64_t seed; (seed = next++) < first + count && failures < 5;) {
      std::string wrong;
      try {
        wrong = Schedule(seed, models).run(&mine);
      } catch (const std::exception& error) {
        wrong = fmt::format("schedule {}: {}", seed, error.what());
      }
      if (wrong.empty()) continue;
      ++failures;
      const std::lock_guard lock(mutex);
      ADD_FAILURE() << wrong;
    }
    const std::lock_guard lock(mutex);
    seen.add(mine);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < usable_cores().count; ++i)
    threads.emplace_back(work);
  for (std::thread& thread : threads)
    thread.join();
  return seen;
}

TEST(Schedules, every_answer_is_the_lone_answer) {
  if (const auto seed = number_of_environment("INVAR_SCHEDULE_SEED")) {
    auto models = all_models();
    Schedule schedule(*seed, models);
    std::printf("%s", schedule.describe().c_str());
    Seen seen;
    EXPECT_EQ(schedule.run(&seen), "");
    return;
  }
  const uint64_t count = number_of_environment("INVAR_SCHEDULES").value_or(reduced_tests() ? 26 : 2000);
  const auto before = std::chrono::steady_clock::now();
  const Seen seen = run_schedules(1, count);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - before;
  const auto n = [](int64_t x) { return static_cast<long long>(x); };
  std::printf(
      "schedules with seeds 1 to %lld in %.1f s: %lld requests, %lld choices, %lld steps; steps that mixed "
      "decode and prompt rows %lld, cut prompts %lld, found prefixes %lld, let prompts follow %lld; "
      "preempted "
      "%lld, rows recomputed %lld, forks %lld, cancelled %lld, observers that threw %lld; schedules with too "
      "few "
      "pages %lld, of which felt %lld, with evictions %lld, windows and hits %lld, windows and preemption "
      "%lld, "
      "forks and preemption %lld\n",
      n(int64_t(count)), took.count(), n(seen.requests), n(seen.choices), n(seen.steps), n(seen.mixed),
      n(seen.cut), n(seen.hits), n(seen.followed), n(seen.preempted), n(seen.recomputed), n(seen.forked),
      n(seen.cancelled), n(seen.threw), n(seen.tight), n(seen.tight_and_felt), n(seen.evicting),
      n(seen.windowed_hits), n(seen.windowed_preempted), n(seen.forked_and_preempted));
  if (HasFailure()) return;
  EXPECT_EQ(seen.schedules, int64_t(count));
  // A run in which something never happens says nothing about it.
  const int64_t some = std::max<int64_t>(1, int64_t(count) / 20), many = int64_t(count);
  EXPECT_GT(seen.mixed, many);
  EXPECT_GT(seen.cut, many);
  EXPECT_GT(seen.hits, many);
  EXPECT_GT(seen.forked, many);
  EXPECT_GT(seen.preempted, many / 4);
  EXPECT_GT(seen.recomputed, many / 4);
  EXPECT_GT(seen.followed, some);
  EXPECT_GT(seen.cancelled, some);
  EXPECT_GT(seen.threw, some);
  EXPECT_GT(seen.evicting, some);
  EXPECT_GT(seen.windowed_hits, some);
  EXPECT_GT(seen.windowed_preempted, some);
  EXPECT_GT(seen.forked_and_preempted, some);
  EXPECT_GT(seen.apart, some) << "requests whose pages nobody may share";
  EXPECT_GT(seen.tight_and_felt, seen.tight * 3 / 4) << "most pools that are tight must be felt to be";
}

}  // namespace
}  // namespace invar
