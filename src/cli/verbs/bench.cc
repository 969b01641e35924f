// invar bench: prompt and decode speed of one model on this machine, with the facts that make a number
// comparable.

#include <algorithm>

#include "base/clock.h"
#include "base/progress.h"
#include "cli/benchmark/cases.h"
#include "cli/benchmark/machine_limits.h"
#include "cli/benchmark/profile.h"
#include "cli/benchmark/report.h"
#include "cli/engine_flags.h"
#include "cli/interrupt.h"
#include "cli/verbs.h"

namespace invar {
namespace {

// "128,512": numbers of at least `least`.
Status take_list(const char* flag, const std::string& text, int64_t least, int64_t most,
                 std::vector<int64_t>* out) {
  out->clear();
  size_t at = 0;
  while (at <= text.size()) {
    const size_t end = std::min(text.find(',', at), text.size());
    ASSIGN_OR_RETURN(const int64_t n, parse_integer(flag, text.substr(at, end - at), least, most));
    out->push_back(n);
    at = end + 1;
  }
  return {};
}

int32_t tokens_needed(const BenchPlan& plan) {
  const auto longest = [](const std::vector<int64_t>& v) {
    return v.empty() ? 0 : int32_t(*std::max_element(v.begin(), v.end()));
  };
  return std::max(longest(plan.prompts), std::max(1, longest(plan.depths)) + plan.decode) + 1;
}

// How a case runs.
struct Bench {
  Engine& engine;
  int32_t vocab;
  Profile& profile;
};

Result<CaseProfile> profile_case(const Bench& b, const BenchCase& c) {
  constexpr uint64_t kSeed = uint64_t{1} << 40;  // prompts that no cache holds
  const Result<double> speed = run_bench_case(b.engine, c, b.vocab, kSeed, [&] { b.profile.start(); });
  b.profile.stop();
  RETURN_IF_ERROR(speed.status());
  return CaseProfile{
      .name = c.name,
      .steps = b.profile.steps(),
      .step_s = double(b.profile.step_ns()) * 1e-9 / double(std::max<int64_t>(b.profile.steps(), 1)),
      .bytes_per_step = b.profile.bytes_per_step(),
      .outside_share = b.profile.outside_share(),
      .phases = b.profile.phases()};
}

// Where the time of the first prompt and of the first decoding goes.
Status add_profiles(const Bench& b, BenchReport* report) {
  for (const bool decodes : {false, true}) {
    const auto c = std::find_if(report->cases.begin(), report->cases.end(),
                                [&](const BenchCase& one) { return (one.decode > 0) == decodes; });
    if (c == report->cases.end()) continue;
    ASSIGN_OR_RETURN(CaseProfile profile, profile_case(b, *c));
    report->profiles.push_back(std::move(profile));
  }
  return {};
}

Status add_decode_bytes(const Bench& b, BenchReport* report) {
  const auto plain = std::find_if(report->cases.begin(), report->cases.end(), is_plain_decode);
  if (plain == report->cases.end()) return {};
  BenchCase few = *plain;
  few.decode = std::min(few.decode, 4);
  ASSIGN_OR_RETURN(const CaseProfile profile, profile_case(b, few));
  report->decode_bytes = profile.bytes_per_step;
  return {};
}

Status run_cases(const Bench& b, const EngineFlags& flags, int32_t repetitions, BenchReport* report) {
  ThreadPool pool({.threads = flags.threads()});
  const KernelTable& kernels = *choose_kernels(flags.backend_options().isa);
  std::vector<MachineLimits> limits;
  Progress progress("bench", int64_t(report->cases.size()) * (repetitions + 1), Progress::Unit::kItems);
  for (int32_t r = -1; r < repetitions; ++r) {  // the first round warms up: pages, caches, clocks
    for (BenchCase& c : report->cases) {
      // No prompt begins like another: the prefix cache would have its beginning.
      const uint64_t seed = uint64_t(r + 2) << 32 | uint64_t(c.prompt);
      ASSIGN_OR_RETURN(const double speed, run_bench_case(b.engine, c, b.vocab, seed));
      if (r >= 0) c.tokens_per_s.push_back(speed);
      progress.advance(1);
    }
    if (r == -1) report->residence = residence();  // before the limits, which need memory too
    ASSIGN_OR_RETURN(limits.emplace_back(), measure_limits(pool, kernels));
  }
  report->limits = median_limits(limits);
  return {};
}

Status bench(EngineFlags& flags, const BenchPlan& plan, int32_t repetitions, bool profiles, bool json) {
  const double start = now_s(), foreign_start = foreign_cpu_s();
  ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, flags.load_model());
  if (flags.options.context == 0)
    flags.options.context = std::min(tokens_needed(plan), model->info().context_length);
  Profile profile;  // ends after the engine
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, flags.make_engine(model));
  const Bench b{*engine, model->info().vocab, profile};
  BenchReport report;
  report.load_s = now_s() - start;
  report.cases = bench_cases(plan, engine->context(), &report.left_out);
  if (report.cases.empty())
    return invalid_argument("nothing fits into the context of " + std::to_string(engine->context()) +
                            " tokens");
  RETURN_IF_ERROR(run_bench_case(*engine, {.name = "first token", .prompt = 1}, b.vocab, 1).status());
  report.first_token_s = now_s() - start;
  RETURN_IF_ERROR(run_cases(b, flags, repetitions, &report));
  if (profiles) RETURN_IF_ERROR(add_profiles(b, &report));
  RETURN_IF_ERROR(add_decode_bytes(b, &report));
  report.machine = this_machine();
  report.backend = flags.backend_name();
  report.kv = flags.options.kv;
  report.context = engine->context();
  report.foreign_cores = (foreign_cpu_s() - foreign_start) / (now_s() - start);
  RETURN_IF_ERROR(model->wait_verified());
  (json ? print_bench_json : print_bench_text)(report, *model);
  return {};
}

}  // namespace

int bench_verb(Arguments args) {
  EngineFlags engine;
  BenchPlan plan;
  int32_t repetitions = 3;
  bool json = false, profile = false;
  std::vector<std::string> models;
  Flags flags("bench", "measure prompt and decode speed");
  flags.example("invar bench --threads 2", "the default model");
  flags.example("invar bench model.gguf --prompt 32,1024 --depth 0 --sequences 1 --json", "for other tools");
  flags.section("Measurement");
  const auto list = [&](const char* flag, std::vector<int64_t>* target, int64_t least, int64_t most,
                        const std::string& help) {
    flags.parsed(flag, "LIST", help,
                 [=](const std::string& text) { return take_list(flag, text, least, most, target); });
  };
  list("--prompt", &plan.prompts, 0, 1 << 20, "prompt lengths in tokens (default: 128,512,2048; 0 = none)");
  flags.integer("--decode", &plan.decode, "decode steps of each measurement (default: 64; 0 = none)", 0,
                1 << 20);
  list("--depth", &plan.depths, 0, 1 << 20, "tokens before the decode steps (default: 0,2048,8192)");
  list("--sequences", &plan.sequences, 1, kMaxBatch,
       "sequences that decode side by side at depth 0 (default: 1,4,8,16)");
  flags.integer("--reps", &repetitions, "runs of each after a warm-up; the median counts (default: 3)", 1,
                1000);
  flags.on("--profile", &profile,
           "also say where the time of the first prompt and of the first decoding goes, beside the machine's "
           "limits");
  flags.on("--json", &json, "one JSON object on standard output");
  flags.rest("MODEL", &models, "the model, as --model takes it");
  engine.declare(flags);
  if (const auto end = parse_or_end(flags, args)) return *end;
  if (const Status s = engine.take_model(models); !s.ok()) return fail_usage(s);
  if (plan.decode == 0 &&
      std::all_of(plan.prompts.begin(), plan.prompts.end(), [](int64_t n) { return n == 0; }))
    return fail_usage(invalid_argument("nothing to measure: give --prompt or --decode a length"));
  engine.options.max_batch = std::max(
      engine.options.max_batch, int32_t(*std::max_element(plan.sequences.begin(), plan.sequences.end())));
  Interrupt interrupt;  // without a handler: ends at once, and takes unfinished files along
  if (const Status s = bench(engine, plan, repetitions, profile, json); !s.ok()) return fail(s);
  return 0;
}

}  // namespace invar
