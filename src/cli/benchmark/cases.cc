#include "cli/benchmark/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/clock.h"

namespace invar {
namespace {

// xorshift64*.
std::vector<int32_t> random_ids(int32_t n, int32_t vocab, uint64_t seed) {
  std::vector<int32_t> ids;
  uint64_t x = seed * 0x9E3779B97F4A7C15 + 1;
  for (int32_t i = 0; i < n; ++i) {
    x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
    ids.push_back(int32_t((x * 0x2545F4914F6CDD1D >> 33) % uint64_t(vocab)));
  }
  return ids;
}

// The answers of a run and when their tokens came.
class Run {
 public:
  Status submit(Engine& engine, const BenchCase& c, int32_t vocab, uint64_t seed) {
    for (int32_t i = 0; i < c.sequences; ++i) {
      GenerateRequest request;
      request.prompt = random_ids(c.prompt, vocab, seed + uint64_t(i));
      request.sampling.temperature = 0;
      request.max_tokens = 1 + c.decode;
      request.ignore_eos = true;
      ASSIGN_OR_RETURN(std::shared_ptr<Stream> stream, engine.submit(std::move(request)));
      streams_.push_back(std::move(stream));
    }
    return {};
  }

  // Takes what a step gave. Decoding counts from the moment when every sequence has its first token.
  Status take() {
    const double now = now_s();
    for (size_t i = 0; i < streams_.size(); ++i) {
      while (const std::optional<TokenEvent> event = streams_[i]->try_next()) {
        if (event->finish == FinishReason::kError) return event->error;
        if (!event->token) continue;
        if (all_began()) ++tokens_after_;
        ++tokens_;
        last_at_ = now;
        began_[i] = true;
      }
    }
    if (!all_began() && std::all_of(began_.begin(), began_.end(), [](bool b) { return b; }))
      all_began_at_ = now;
    return {};
  }

  explicit Run(int32_t sequences) : began_(size_t(sequences)) {}
  int64_t tokens() const { return tokens_; }
  bool all_began() const { return all_began_at_ > 0; }
  double prompt_seconds(double start) const { return all_began_at_ - start; }
  double decode_speed() const { return double(tokens_after_) / (last_at_ - all_began_at_); }

 private:
  std::vector<std::shared_ptr<Stream>> streams_;
  std::vector<bool> began_;
  double all_began_at_ = 0, last_at_ = 0;
  int64_t tokens_ = 0, tokens_after_ = 0;
};

}  // namespace

std::vector<BenchCase> bench_cases(const BenchPlan& plan, int32_t context, std::string* left_out) {
  std::vector<BenchCase> cases;
  const auto add = [&](BenchCase c) {
    if (c.prompt + c.decode + 1 <= context)
      cases.push_back(std::move(c));
    else
      *left_out += (left_out->empty() ? "" : ", ") + c.name;
  };
  for (const int64_t n : plan.prompts)
    if (n > 0) add({.name = fmt::format("prompt {}", n), .prompt = int32_t(n)});
  if (plan.decode == 0) return cases;
  for (const int64_t asked : plan.depths) {
    // The end of the context stands for what lies a little beyond it.
    const int64_t room = context - plan.decode - 1, depth = asked <= room || room < asked / 2 ? asked : room;
    add({.name = fmt::format("decode, depth {}", depth),
         .prompt = std::max(1, int32_t(depth)),
         .decode = plan.decode});
  }
  for (const int64_t n : plan.sequences)
    if (n > 1)  // one is the decoding at depth 0
      add({.name = fmt::format("decode, {} sequences", n),
           .prompt = 1,
           .decode = plan.decode,
           .sequences = int32_t(n)});
  return cases;
}

Result<double> run_bench_case(Engine& engine, const BenchCase& c, int32_t vocab, uint64_t seed,
                              FunctionRef<void()> begins) {
  Run run(c.sequences);
  const double start = now_s();
  RETURN_IF_ERROR(run.submit(engine, c, vocab, c.decode > 0 ? 1 : seed));
  bool began = c.decode == 0;
  if (began) begins();
  while (engine.step()) {
    RETURN_IF_ERROR(run.take());
    if (!began && run.all_began()) {
      began = true;
      begins();
    }
  }
  if (run.tokens() != int64_t(c.sequences) * (1 + c.decode))
    return internal_error(
        fmt::format("{}: {} of {} tokens came", c.name, run.tokens(), int64_t(c.sequences) * (1 + c.decode)));
  return c.decode ? run.decode_speed() : c.prompt / run.prompt_seconds(start);
}

}  // namespace invar
