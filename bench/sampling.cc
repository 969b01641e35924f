// bench_sampling: time of one sampled row over a vocabulary of 151,936 tokens for several settings, and of
// eight such rows as a share of the output layer alone (151,936 x 896, 4-bit weights, 8 rows) measured in the
// same run: a lower bound of the step that these rows belong to. Medians.
//   bench_sampling [--threads 2] [--runs 15] [--vocab 151936] [--hidden 896]

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "sampling/mirostat.h"
#include "sampling/sampler.h"
#include "tensor/buffer.h"
#include "tensor/float16.h"
#include "time_runs.h"

namespace invar {
namespace {

constexpr int32_t kRows = 8;

struct Options {
  int threads = 2, runs = 15, vocab = 151'936, hidden = 896;
};

// The output layer over kRows rows, all threads. Two copies in turn, so that none stays in a cache.
double output_layer_seconds(const Options& o, const KernelTable& set) {
  const PackedForm* form = find_packed_form("u4z8");
  ThreadPool pool({.threads = o.threads});
  PackedMatrix w{form, o.vocab, o.hidden, nullptr};
  const size_t stride = round_up(w.bytes(), 64);
  Buffer memory(2 * stride);
  std::mt19937_64 random(1);
  for (size_t i = 0; i + 8 <= memory.size(); i += 8) {
    const uint64_t codes = random() & 0x0F0F0F0F0F0F0F0F;  // as scales: small ordinary numbers
    std::memcpy(memory.data() + i, &codes, 8);
  }
  Buffer x(size_t(kRows) * size_t(o.hidden) * 4), y(size_t(kRows) * size_t(o.vocab) * 4);
  const size_t q_stride = quantized_row_bytes(o.hidden);
  Buffer q(q_stride * kRows);
  uint8_t fault = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    for (int k = 0; k < o.hidden; ++k)
      x.as<float>()[r * o.hidden + k] = float(int(random() % 2001) - 1000) * 0.002f;
    set.quantize_row(x.as<float>() + r * o.hidden, o.hidden, q.data() + size_t(r) * q_stride, &fault);
  }
  const LinearInput in{kRows, x.as<float>(), o.hidden, q.data(), q_stride};
  const LinearOutput out{y.as<float>(), o.vocab, nullptr, false};
  const int64_t tiles = tile_count(o.vocab), step = 16;
  size_t copy = 0;
  return time_runs(o.runs,
                   [&] {
                     w.data = memory.data() + (copy++ % 2) * stride;
                     pool.run((tiles + step - 1) / step, [&](int64_t claim, int) {
                       set.linear(w, claim * step, std::min(tiles, (claim + 1) * step), in, out);
                     });
                   })
      .median;
}

// A few likely tokens over a bell of unlikely ones some 20 below, as language models give them.
std::vector<std::vector<float>> model_rows(int vocab) {
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

int run(int argc, char** argv) {
  Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    int* target = flag == "--threads"  ? &o.threads
                  : flag == "--runs"   ? &o.runs
                  : flag == "--vocab"  ? &o.vocab
                  : flag == "--hidden" ? &o.hidden
                                       : nullptr;
    if (target == nullptr) {
      fmt::print(stderr, "bench_sampling: unknown flag {}\n", flag);
      return 2;
    }
    *target = std::max(1, std::atoi(argv[i + 1]));
  }
  const KernelTable* set = choose_kernels("");
  const double layer = output_layer_seconds(o, *set);
  fmt::print("{}, output layer {} x {} over {} rows, {} threads: {:.3f} ms\n\n", set->name, o.vocab, o.hidden,
             kRows, o.threads, layer * 1e3);
  fmt::print("{:<34} {:>10} {:>12} {:>16}\n", "setting", "us a row", "ms of 8 rows", "of that layer");

  const auto rows = model_rows(o.vocab);
  std::vector<int32_t> history;
  std::mt19937 random(3);
  for (int i = 0; i < 4000; ++i)
    history.push_back(int32_t(random() % 2000));
  TokenCounts counts;
  for (size_t n = 1; n <= 1000; ++n)
    counts.appended(std::span(history).first(n), 0);
  Sampler sampler(set->rows);
  int64_t checksum = 0;
  for (Setting& s : settings()) {
    int32_t position = 0;
    const double seconds = time_runs(o.runs, [&] {
                             for (const auto& row : rows) {
                               const auto choice = sampler.choose({.logits = row,
                                                                   .params = s.params,
                                                                   .counts = counts,
                                                                   .mask = {},
                                                                   .position = position++,
                                                                   .history = history,
                                                                   .mirostat_mu = mirostat_start(s.params)});
                               checksum += choice->token;
                             }
                           }).median;
    fmt::print("{:<34} {:>10.1f} {:>12.3f} {:>15.1f}%\n", s.name, seconds * 1e6 / kRows, seconds * 1e3,
               100 * seconds / layer);
  }
  fmt::print("\n(checksum of the choices: {})\n", checksum);
  return 0;
}

}  // namespace
}  // namespace invar

int main(int argc, char** argv) {
  return invar::run(argc, argv);
}
