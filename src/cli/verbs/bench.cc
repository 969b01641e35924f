// invar bench: prompt and decode speed of one model on this machine, with the facts that make a number
// comparable.

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <optional>

#include "base/clock.h"
#include "base/progress.h"
#include "base/quote.h"
#include "base/size_text.h"
#include "cli/engine_flags.h"
#include "cli/interrupt.h"
#include "cli/machine.h"
#include "cli/verbs.h"

namespace invar {
namespace {

struct Case {
  std::string name;                    // "prompt 512"
  int32_t prompt = 0;                  // tokens before the measured part
  int32_t decode = 0;                  // measured decode steps; 0 = the prompt itself is measured
  std::vector<double> tokens_per_s{};  // one per repetition
};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.size() % 2 ? v[v.size() / 2] : (v[v.size() / 2 - 1] + v[v.size() / 2]) / 2;
}

// Ids that differ between repetitions, so that no cache of prefixes can help. xorshift64*.
std::vector<int32_t> random_ids(int32_t n, int32_t vocab, uint64_t seed) {
  std::vector<int32_t> ids;
  uint64_t x = seed * 0x9E3779B97F4A7C15 + 1;
  for (int32_t i = 0; i < n; ++i) {
    x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
    ids.push_back(int32_t((x * 0x2545F4914F6CDD1D >> 33) % uint64_t(vocab)));
  }
  return ids;
}

// Tokens per second of one run of the case.
Result<double> measure(Engine& engine, const Case& c, int32_t vocab, uint64_t seed) {
  GenerateRequest request;
  request.prompt = random_ids(c.prompt, vocab, seed);
  request.sampling.temperature = 0;
  request.max_tokens = 1 + c.decode;
  request.ignore_eos = true;
  ASSIGN_OR_RETURN(const std::shared_ptr<Stream> stream, engine.submit(std::move(request)));
  const double start = now_s();
  double first = start, last = start;
  int32_t tokens = 0;
  while (engine.step()) {
    const double now = now_s();
    while (const std::optional<TokenEvent> event = stream->try_next()) {
      if (event->finish == FinishReason::kError) return event->error;
      if (!event->token) continue;
      if (++tokens == 1) first = now;
      last = now;
    }
  }
  if (tokens != 1 + c.decode)
    return internal_error(fmt::format("{}: {} of {} tokens came", c.name, tokens, 1 + c.decode));
  return c.decode ? c.decode / (last - first) : c.prompt / (first - start);
}

void print_text(const EngineFlags& flags, const Model& model, const Machine& m,
                const std::vector<Case>& cases) {
  const ModelInfo& info = model.info();
  fmt::print("model    {} ({}, {:.1f} M parameters, {} packed)\n", printable_within(info.name, 60),
             info.family, double(info.parameters) / 1e6, size_text(model.packed_bytes()));
  fmt::print("machine  {}; {} cores; {} memory; {}\n", m.cpu, m.cores, size_text(m.memory_bytes), m.system);
  fmt::print("kernels  {}; kv {}\n\n", flags.backend_name(), flags.options.kv);
  fmt::print("{:<14} {:>10} {:>10} {:>10}   tokens/s over {} runs\n", "", "median", "least", "most",
             cases[0].tokens_per_s.size());
  for (const Case& c : cases)
    fmt::print("{:<14} {:>10.1f} {:>10.1f} {:>10.1f}\n", c.name, median(c.tokens_per_s),
               *std::min_element(c.tokens_per_s.begin(), c.tokens_per_s.end()),
               *std::max_element(c.tokens_per_s.begin(), c.tokens_per_s.end()));
}

void print_json(const EngineFlags& flags, const Model& model, const Machine& m,
                const std::vector<Case>& cases) {
  boost::json::array results;
  for (const Case& c : cases) {
    results.push_back({{"name", c.name},
                       {"prompt_tokens", c.prompt},
                       {"decode_tokens", c.decode},
                       {"median_tokens_per_s", median(c.tokens_per_s)},
                       {"tokens_per_s", boost::json::value_from(c.tokens_per_s)}});
  }
  const boost::json::object report = {
      {"model",
       {{"name", model.info().name},
        {"family", model.info().family},
        {"parameters", model.info().parameters},
        {"packed_bytes", model.packed_bytes()}}},
      {"machine",
       {{"cpu", m.cpu}, {"system", m.system}, {"cores", m.cores}, {"memory_bytes", m.memory_bytes}}},
      {"backend", flags.backend_name()},
      {"kv", flags.options.kv},
      {"peak_resident_bytes", peak_resident_bytes()},
      {"results", results}};
  fmt::print("{}\n", boost::json::serialize(report));
}

Result<std::vector<int64_t>> lengths(const std::string& flag, const std::string& list) {
  std::vector<int64_t> out;
  size_t at = 0;
  while (at <= list.size()) {
    const size_t end = std::min(list.find(',', at), list.size());
    ASSIGN_OR_RETURN(const int64_t n, parse_integer(flag, list.substr(at, end - at), 0, 1 << 20));
    if (n > 0) out.push_back(n);
    at = end + 1;
  }
  return out;
}

Status bench(EngineFlags& flags, std::vector<Case> cases, int32_t repetitions, bool json) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, flags.load_model());
  int32_t longest = 0;
  for (const Case& c : cases)
    longest = std::max(longest, c.prompt + c.decode + 1);
  if (flags.options.context == 0) flags.options.context = std::min(longest, model->info().context_length);
  flags.options.prefix_cache_bytes = 0;  // equal prompts are to be computed each time
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, flags.make_engine(model));
  {
    Progress progress("bench", int64_t(cases.size()) * (repetitions + 1), Progress::Unit::kItems);
    for (int32_t r = -1; r < repetitions; ++r) {  // the first round warms up: pages, caches, clocks
      for (Case& c : cases) {
        ASSIGN_OR_RETURN(const double speed, measure(*engine, c, model->info().vocab, uint64_t(r + 2)));
        if (r >= 0) c.tokens_per_s.push_back(speed);
        progress.advance(1);
      }
    }
  }
  (json ? print_json : print_text)(flags, *model, this_machine(), cases);
  return {};
}

}  // namespace

int bench_verb(Arguments args) {
  EngineFlags engine;
  std::string prompts = "128,512", decodes = "64";
  int32_t repetitions = 5;
  bool json = false;
  Flags flags("bench", "measure prompt and decode speed");
  flags.example("invar bench --threads 2", "the default model");
  flags.example("invar bench --model model.gguf --prompt 32,1024 --decode 128 --json", "for other tools");
  flags.section("Measurement");
  flags.text("--prompt", &prompts, "LIST", "prompt lengths in tokens (default: 128,512; 0 = none)");
  flags.text("--decode", &decodes, "LIST",
             "decode steps after a prompt of one token (default: 64; 0 = none)");
  flags.integer("--reps", &repetitions, "runs of each after a warm-up; the median counts (default: 5)", 1,
                1000);
  flags.on("--json", &json, "one JSON object on standard output");
  engine.declare(flags);
  if (const auto end = parse_or_end(flags, args)) return *end;

  std::vector<Case> cases;
  const auto prompt_lengths = lengths("--prompt", prompts), decode_lengths = lengths("--decode", decodes);
  if (!prompt_lengths.ok()) return fail_usage(prompt_lengths.status());
  if (!decode_lengths.ok()) return fail_usage(decode_lengths.status());
  for (const int64_t n : *prompt_lengths)
    cases.push_back({fmt::format("prompt {}", n), int32_t(n), 0});
  for (const int64_t n : *decode_lengths)
    cases.push_back({fmt::format("decode {}", n), 1, int32_t(n)});
  if (cases.empty())
    return fail_usage(invalid_argument("nothing to measure: give --prompt or --decode a length"));
  Interrupt interrupt;  // without a handler: ends at once, and takes unfinished files along
  if (const Status s = bench(engine, std::move(cases), repetitions, json); !s.ok()) return fail(s);
  return 0;
}

}  // namespace invar
