// bench_sampling: time of sampling eight rows over a vocabulary of 151,936 tokens on all threads, as the
// engine does, for several settings; and its share of a step, measured in the same run: the linear layers
// alone of a model of 494 million weights (4 bits, the shapes of Qwen2.5 0.5B) over eight rows. Medians.
//   bench_sampling [--threads 2] [--runs 15]

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
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

constexpr int64_t kRows = 8;

constexpr int64_t kVocab = 151'936;

struct Options {
  int threads = 2, runs = 15;
};

struct Layer {
  int64_t channels, columns;
  int count;
};
constexpr Layer kLayers[] = {
    {1152, 896, 24}, {896, 896, 24}, {9728, 896, 24}, {896, 4864, 24}, {kVocab, 896, 1}};

// Every linear layer of a step over kRows rows, one after the other, each with weights of its own.
class Step {
 public:
  explicit Step(const KernelTable& set) : set_(set) {
    size_t bytes = 0;
    for (const Layer& layer : kLayers)
      bytes += size_t(layer.count) * round_up(matrix(layer).bytes(), 64);
    weights_ = Buffer(bytes);
    std::mt19937_64 random(1);
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
      const uint64_t codes = random() & 0x0F0F0F0F0F0F0F0F;  // as scales: small ordinary numbers
      std::memcpy(weights_.data() + i, &codes, 8);
    }
    x_ = Buffer(size_t(kRows * kColumns) * 4);
    y_ = Buffer(size_t(kRows * kVocab) * 4);
    q_ = Buffer(quantized_row_bytes(kColumns) * kRows);
    for (int64_t i = 0; i < kRows * kColumns; ++i)
      x_.as<float>()[i] = float(int(random() % 2001) - 1000) * 0.002f;
  }

  void run(ThreadPool& pool) {
    const std::byte* weights = weights_.data();
    for (const Layer& layer : kLayers) {
      const size_t q_stride = quantized_row_bytes(layer.columns);
      uint8_t fault = 0;
      for (int64_t r = 0; r < kRows; ++r)
        set_.quantize_row(x_.as<float>() + r * kColumns, layer.columns, q_.data() + size_t(r) * q_stride,
                          &fault);
      for (int i = 0; i < layer.count; ++i) {
        PackedMatrix w = matrix(layer);
        w.data = weights;
        weights += round_up(w.bytes(), 64);
        const LinearInput in{kRows, x_.as<float>(), kColumns, q_.data(), q_stride};
        const LinearOutput out{y_.as<float>(), layer.channels, nullptr, false};
        const int64_t tiles = tile_count(layer.channels), step = tiles > 1000 ? 16 : 4;
        pool.run((tiles + step - 1) / step, [&](int64_t claim, int) {
          set_.linear(w, claim * step, std::min(tiles, (claim + 1) * step), in, out);
        });
      }
    }
  }

 private:
  static constexpr int64_t kColumns = 4864;  // the widest input
  static PackedMatrix matrix(const Layer& layer) {
    return {find_packed_form("u4z8"), layer.channels, layer.columns, nullptr};
  }

  const KernelTable& set_;
  Buffer weights_{0}, x_{0}, y_{0}, q_{0};
};

// A few likely tokens over a bell of unlikely ones some 20 below, as language models give them.
std::vector<std::vector<float>> model_rows() {
  std::vector<std::vector<float>> rows(kRows);
  std::mt19937 random(7);
  std::normal_distribution<float> bell(0.0f, 2.2f);
  for (auto& row : rows) {
    row.resize(size_t(kVocab));
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
    int* target = flag == "--threads" ? &o.threads : flag == "--runs" ? &o.runs : nullptr;
    if (target == nullptr) {
      fmt::print(stderr, "bench_sampling: unknown flag {}\n", flag);
      return 2;
    }
    *target = std::max(1, std::atoi(argv[i + 1]));
  }
  const KernelTable* set = choose_kernels("");
  ThreadPool pool({.threads = o.threads});
  Step step(*set);
  const double step_s = time_runs(o.runs, [&] { step.run(pool); }).median;
  fmt::print("{}, {} threads, a step of {} rows: {:.2f} ms\n\n", set->name, o.threads, kRows, step_s * 1e3);
  fmt::print("{:<34} {:>14} {:>10}\n", "setting", "us of 8 rows", "of a step");

  const auto rows = model_rows();
  std::vector<int32_t> history;
  std::mt19937 random(3);
  for (int i = 0; i < 4000; ++i)
    history.push_back(int32_t(random() % 2000));
  TokenCounts counts;
  for (size_t n = 1; n <= 1000; ++n)
    counts.appended(std::span(history).first(n), 0);
  std::vector<Sampler> samplers(size_t(o.threads), Sampler(set->rows));
  std::vector<int32_t> chosen(kRows);
  int64_t checksum = 0;
  for (const Setting& s : settings()) {
    int32_t position = 0;
    const double seconds = time_runs(o.runs, [&] {
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
                             checksum += std::accumulate(chosen.begin(), chosen.end(), int64_t{0});
                           }).median;
    fmt::print("{:<34} {:>14.0f} {:>9.1f}%\n", s.name, seconds * 1e6, 100 * seconds / step_s);
  }
  fmt::print("\n(checksum of the choices: {})\n", checksum);
  return 0;
}

}  // namespace
}  // namespace invar

int main(int argc, char** argv) {
  return invar::run(argc, argv);
}
