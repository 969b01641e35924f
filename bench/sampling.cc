// bench_sampling: time of sampling eight rows over the vocabulary of a model on all threads, as the engine
// does, for several settings; and its share of a step, measured in the same run: the engine's own record of
// steps in which eight sequences of that model take a token each, --depth tokens into their texts. Medians.
//   test/shapes/make_shape.py qwen2.5-0.5b MODEL.gguf
//   bench_sampling MODEL.gguf [--threads 2] [--runs 15] [--depth 512]

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "cli/benchmark/time_runs.h"
#include "cli/engine_flags.h"
#include "kernels/kernel_table.h"
#include "sampling/mirostat.h"
#include "sampling/sampler.h"

namespace invar {
namespace {

constexpr int kRows = 8;

struct Options {
  std::string model;
  int threads = 2, runs = 15, depth = 512;
};

// Median seconds of a step of the engine without its sampling.
Result<double> measure_step(const Options& o, const std::shared_ptr<const Model>& model, EngineFlags& flags) {
  flags.options.context = o.depth + o.runs + 2;
  flags.options.prefix_cache_bytes = 0;
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, flags.make_engine(model));
  std::vector<double> seconds;
  engine->set_trace([&](const StepRecord& step) {
    if (step.decode_rows == kRows && step.prompt_rows == 0)
      seconds.push_back(double(step.total_ns - step.sample_ns) * 1e-9);
  });
  std::mt19937 random(5);
  std::vector<std::shared_ptr<Stream>> streams;
  for (int r = 0; r < kRows; ++r) {
    GenerateRequest request;
    for (int i = 0; i < o.depth; ++i)
      request.prompt.push_back(int32_t(random() % uint32_t(model->info().vocab)));
    request.max_tokens = o.runs + 1;
    request.ignore_eos = true;
    request.sampling.temperature = 0;
    ASSIGN_OR_RETURN(std::shared_ptr<Stream> stream, engine->submit(std::move(request)));
    streams.push_back(std::move(stream));
  }
  while (engine->step()) {
  }
  if (seconds.empty()) return internal_error("no step had eight rows");
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

// A few likely tokens over a bell of unlikely ones some 20 below, as language models give them.
std::vector<std::vector<float>> model_rows(int32_t vocab) {
  std::vector<std::vector<float>> rows(kRows);
  std::mt19937 random(7);
  std::normal_distribution<float> bell(0.0f, 2.2f);
  for (auto& row : rows) {
    row.resize(size_t(vocab));
    for (float& x : row)
      x = bell(random);
    for (int i = 0; i < 60; ++i)
      row[random() % row.size()] = 21.0f - 3.0f * std::log(1.0f + float(i)) + 0.2f * bell(random);
  }
  return rows;
}

struct Setting {
  const char* name;
  SamplingParams params;
};

std::vector<Setting> settings() {
  return {
      {"temperature 0", {.temperature = 0}},
      {"temperature 0.8", {.temperature = 0.8f}},
      {"top_k 40, top_p 0.95, min_p 0.05",
       {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f}},
      {"top_k 40", {.top_k = 40}},
      {"top_p 0.95", {.top_p = 0.95f}},
      {"min_p 0.05", {.min_p = 0.05f}},
      {"typical_p 0.9", {.typical_p = 0.9f}},
      {"top_n_sigma 1", {.top_n_sigma = 1.0f}},
      {"xtc", {.xtc_probability = 0.5f}},
      {"dynamic temperature", {.dynatemp_range = 0.5f}},
      {"mirostat 1", {.mirostat = 1}},
      {"mirostat 2", {.mirostat = 2}},
      {"dry, history of 4,000", {.temperature = 0, .dry_multiplier = 0.8f}},
      {"penalties, 1,000 tokens", {.temperature = 0, .presence_penalty = 0.5f, .repetition_penalty = 1.1f}},
      {"logprobs 5", {.temperature = 0, .logprobs = 5}},
  };
}

Result<Options> parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    int* target = flag == "--threads" ? &o.threads
                  : flag == "--runs"  ? &o.runs
                  : flag == "--depth" ? &o.depth
                                      : nullptr;
    if (target != nullptr && i + 1 < argc)
      *target = std::max(1, std::atoi(argv[++i]));
    else if (o.model.empty() && !flag.starts_with("-"))
      o.model = flag;
    else
      return invalid_argument("unknown argument " + flag);
  }
  if (o.model.empty())
    return invalid_argument("which model? make one: test/shapes/make_shape.py qwen2.5-0.5b MODEL.gguf");
  return o;
}

// Median seconds of choosing a token for each row.
double measure_choices(const Setting& s, const Options& o, const std::vector<std::vector<float>>& rows,
                       ThreadPool& pool, std::vector<Sampler>& samplers, int64_t* checksum) {
  std::vector<int32_t> history;
  std::mt19937 random(3);
  for (int i = 0; i < 4000; ++i)
    history.push_back(int32_t(random() % 2000));
  TokenCounts counts;
  for (size_t n = 1; n <= 1000; ++n)
    counts.appended(std::span(history).first(n), 0);
  std::vector<int32_t> chosen(kRows);
  int32_t position = 0;
  return time_runs(o.runs,
                   [&] {
                     pool.run(kRows, [&](int64_t r, int thread) {
                       const auto choice =
                           samplers[size_t(thread)].choose({.logits = rows[size_t(r)],
                                                            .params = s.params,
                                                            .counts = counts,
                                                            .mask = {},
                                                            .position = position,
                                                            .history = history,
                                                            .mirostat_mu = mirostat_start(s.params)});
                       chosen[size_t(r)] = choice->token;
                     });
                     ++position;
                     *checksum += std::accumulate(chosen.begin(), chosen.end(), int64_t{0});
                   })
      .median;
}

Status run(const Options& o) {
  EngineFlags flags;
  flags.set_model(o.model);
  ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, flags.load_model());
  ASSIGN_OR_RETURN(const double step_s, measure_step(o, model, flags));
  fmt::print(
      "{}, {:.0f} M parameters, {} tokens: a step of {} rows at depth {} without sampling: {:.2f} ms\n\n",
      flags.backend_name(), double(model->info().parameters) / 1e6, model->info().vocab, kRows, o.depth,
      step_s * 1e3);
  fmt::print("{:<34} {:>14} {:>10}\n", "setting", "us of 8 rows", "of a step");
  const auto rows = model_rows(model->info().vocab);
  ThreadPool pool({.threads = o.threads});
  std::vector<Sampler> samplers(size_t(o.threads), Sampler(choose_kernels("")->rows));
  int64_t checksum = 0;
  for (const Setting& s : settings()) {
    const double seconds = measure_choices(s, o, rows, pool, samplers, &checksum);
    fmt::print("{:<34} {:>14.0f} {:>9.1f}%\n", s.name, seconds * 1e6, 100 * seconds / (step_s + seconds));
  }
  fmt::print("\n(checksum of the choices: {})\n", checksum);
  return {};
}

}  // namespace
}  // namespace invar

int main(int argc, char** argv) {
  const auto options = invar::parse(argc, argv);
  const invar::Status status = options.ok() ? invar::run(*options) : options.status();
  if (status.ok()) return 0;
  fmt::print(stderr, "bench_sampling: {}\n", status.message());
  return options.ok() ? 1 : 2;
}
