#include "cli/benchmark/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/quote.h"
#include "base/size_text.h"

namespace invar {
namespace {

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.size() % 2 ? v[v.size() / 2] : (v[v.size() / 2 - 1] + v[v.size() / 2]) / 2;
}

double least(const std::vector<double>& v) {
  return *std::min_element(v.begin(), v.end());
}
double most(const std::vector<double>& v) {
  return *std::max_element(v.begin(), v.end());
}

// The widest spread of any case: (most - least) / median.
double noise(const std::vector<BenchCase>& cases) {
  double widest = 0;
  for (const BenchCase& c : cases)
    widest = std::max(widest, (most(c.tokens_per_s) - least(c.tokens_per_s)) / median(c.tokens_per_s));
  return widest;
}

// Above this share of a core the figures are somebody else's too.
constexpr double kQuietCores = 0.1;

}  // namespace

void print_bench_text(const BenchReport& r, const Model& model) {
  const ModelInfo& info = model.info();
  fmt::print("model    {} ({}, {:.1f} M parameters, {} packed)\n", printable_within(info.name, 60),
             info.family, double(info.parameters) / 1e6, size_text(model.packed_bytes()));
  fmt::print("machine  {}; {} cores; {} memory; {}\n", r.machine.cpu, r.machine.cores,
             size_text(r.machine.memory_bytes), r.machine.system);
  fmt::print("kernels  {}; kv {}\n", r.backend, r.kv);
  fmt::print("start    ready after {:.2f} s, first token after {:.2f} s\n", r.load_s, r.first_token_s);
  fmt::print("memory   {} resident, {} of it not of a file; at most {}\n\n", size_text(r.residence.resident),
             size_text(r.residence.anonymous), size_text(r.residence.peak));
  fmt::print("{:<22} {:>10} {:>10} {:>10}   tokens/s over {} runs\n", "", "median", "least", "most",
             r.cases[0].tokens_per_s.size());
  for (const BenchCase& c : r.cases)
    fmt::print("{:<22} {:>10.1f} {:>10.1f} {:>10.1f}\n", c.name, median(c.tokens_per_s),
               least(c.tokens_per_s), most(c.tokens_per_s));
  if (!r.left_out.empty()) fmt::print("\nleft out, does not fit into {} tokens: {}\n", r.context, r.left_out);
  if (r.foreign_cores > kQuietCores)
    fmt::print(
        stderr,
        "invar: warning: other processes kept {:.1f} cores busy meanwhile, and the runs of a line differ "
        "by up to {:.0f} %; compare only what ran side by side\n",
        r.foreign_cores, 100 * noise(r.cases));
}

void print_bench_json(const BenchReport& r, const Model& model) {
  boost::json::array results;
  for (const BenchCase& c : r.cases) {
    results.push_back({{"name", c.name},
                       {"prompt_tokens", c.prompt},
                       {"decode_tokens", c.decode},
                       {"sequences", c.sequences},
                       {"median_tokens_per_s", median(c.tokens_per_s)},
                       {"tokens_per_s", boost::json::value_from(c.tokens_per_s)}});
  }
  const boost::json::object report = {{"model",
                                       {{"name", model.info().name},
                                        {"family", model.info().family},
                                        {"parameters", model.info().parameters},
                                        {"packed_bytes", model.packed_bytes()}}},
                                      {"machine",
                                       {{"cpu", r.machine.cpu},
                                        {"system", r.machine.system},
                                        {"cores", r.machine.cores},
                                        {"memory_bytes", r.machine.memory_bytes}}},
                                      {"backend", r.backend},
                                      {"kv", r.kv},
                                      {"load_s", r.load_s},
                                      {"first_token_s", r.first_token_s},
                                      {"resident_bytes", r.residence.resident},
                                      {"anonymous_bytes", r.residence.anonymous},
                                      {"peak_resident_bytes", r.residence.peak},
                                      {"foreign_cores", r.foreign_cores},
                                      {"left_out", r.left_out},
                                      {"results", results}};
  fmt::print("{}\n", boost::json::serialize(report));
}

}  // namespace invar
