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

double decode_speed(const std::vector<BenchCase>& cases) {
  const auto c = std::find_if(cases.begin(), cases.end(), is_plain_decode);
  return c == cases.end() ? 0 : median(c->tokens_per_s);
}

// Of a phase's time, the part that its way from memory or its dot products take at least.
double share_of_limit(const PhaseTime& p, const BenchReport& r) {
  const double least_ns =
      std::max(p.bytes / r.limits.stream_gb_per_s,
               p.macs / r.limits.dot_gmacs_per_s + p.float_macs / r.limits.fma_gmacs_per_s);
  return p.ns == 0 ? 0 : least_ns / double(p.ns);
}

void print_profile(const CaseProfile& c, const BenchReport& r) {
  const double step_ns = c.step_s * 1e9 * double(c.steps);
  fmt::print("\n{}: {} steps of {:.2f} ms; {:.1f} % of the time outside the kernels\n", c.name, c.steps,
             c.step_s * 1e3, 100 * c.outside_share);
  fmt::print("{:<52} {:>9} {:>7} {:>7} {:>7} {:>9}\n", "", "ms a step", "share", "GB/s", "GOPS", "of limit");
  for (const PhaseTime& p : c.phases) {
    fmt::print("{:<52} {:>9.3f} {:>6.1f}%", printable_within(p.name, 52),
               double(p.ns) * 1e-6 / double(c.steps), 100 * double(p.ns) / step_ns);
    if (p.bytes > 0)
      fmt::print(" {:>7.1f} {:>7.0f} {:>8.0f}%", p.bytes / double(p.ns),
                 2 * (p.macs + p.float_macs) / double(p.ns), 100 * share_of_limit(p, r));
    fmt::print("\n");
  }
}

boost::json::array profiles_json(const BenchReport& r) {
  boost::json::array all;
  for (const CaseProfile& c : r.profiles) {
    boost::json::array phases;
    for (const PhaseTime& p : c.phases)
      phases.push_back({{"name", p.name},
                        {"runs", p.runs},
                        {"ns", p.ns},
                        {"bytes", p.bytes},
                        {"macs", p.macs},
                        {"float_macs", p.float_macs},
                        {"of_limit", share_of_limit(p, r)}});
    all.push_back({{"case", c.name},
                   {"steps", c.steps},
                   {"step_s", c.step_s},
                   {"bytes_per_step", c.bytes_per_step},
                   {"outside_share", c.outside_share},
                   {"phases", phases}});
  }
  return all;
}

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
  if (const double speed = decode_speed(r.cases); speed > 0 && r.decode_bytes > 0)
    fmt::print(
        "\ndecoding reads {} a step: {:.1f} GB/s, {:.0f} % of the {:.1f} GB/s that these threads can read\n",
        size_text(uint64_t(r.decode_bytes)), r.decode_bytes * speed * 1e-9,
        r.decode_bytes * speed * 1e-7 / r.limits.stream_gb_per_s, r.limits.stream_gb_per_s);
  for (const CaseProfile& c : r.profiles)
    print_profile(c, r);
  if (!r.profiles.empty())
    fmt::print("\nlimits: {:.1f} GB/s from memory; on registers {:.0f} GOPS of integers, {:.0f} of floats\n",
               r.limits.stream_gb_per_s, 2 * r.limits.dot_gmacs_per_s, 2 * r.limits.fma_gmacs_per_s);
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
                                      {"stream_gb_per_s", r.limits.stream_gb_per_s},
                                      {"dot_gops", 2 * r.limits.dot_gmacs_per_s},
                                      {"fma_gops", 2 * r.limits.fma_gmacs_per_s},
                                      {"decode_bytes_per_step", r.decode_bytes},
                                      {"profiles", profiles_json(r)},
                                      {"left_out", r.left_out},
                                      {"results", results}};
  fmt::print("{}\n", boost::json::serialize(report));
}

}  // namespace invar
