#pragma once
// The measurements of `invar bench`: what runs, and how fast it went. Main thread, which steps the engine.

#include <cstdint>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "engine/engine.h"

namespace invar {

struct BenchCase {
  std::string name;                    // "prompt 512"
  int32_t prompt = 0;                  // tokens of each prompt
  int32_t decode = 0;                  // measured steps after it; 0 = the prompt itself is measured
  int32_t sequences = 1;               // side by side
  std::vector<double> tokens_per_s{};  // of all sequences together, one per repetition
};

// One sequence, from its beginning on.
inline bool is_plain_decode(const BenchCase& c) {
  return c.decode > 0 && c.sequences == 1 && c.prompt == 1;
}

struct BenchPlan {
  std::vector<int64_t> prompts{128, 512, 2048};
  std::vector<int64_t> depths{0, 2048, 8192};  // tokens before the measured steps; 0 = one
  std::vector<int64_t> sequences{1, 4, 8, 16};
  int32_t decode = 64;
};

// What of the plan fits into `context` tokens; `left_out` says what does not.
std::vector<BenchCase> bench_cases(const BenchPlan& plan, int32_t context, std::string* left_out);

// Tokens per second of one run. Prompts are random ids, new ones with each seed where the prompt is measured;
// where decoding is, the same ones, so that the prefix cache has them from the second run on. `begins` is
// called when the steps begin that count.
Result<double> run_bench_case(
    Engine& engine, const BenchCase& c, int32_t vocab, uint64_t seed, FunctionRef<void()> begins = [] {});

}  // namespace invar
