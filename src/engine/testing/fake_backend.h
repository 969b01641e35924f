#pragma once
// FakeBackend: a backend for engine tests whose logits depend on every byte of the cache that a real model
// would read. Each token leaves a hash in its slot; a row's logits are drawn from a hash over all slots it
// can see. A wrong page, a missing or stale slot, a wrong position or a foreign token changes every later
// token.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "backends/backend.h"
#include "sampling/testing/plain_rows.h"

namespace invar {

inline constexpr int32_t kFakeVocab = 97;

inline uint64_t fake_mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// What a test changes while steps run; shared with the backend that the engine owns.
struct FakeScript {
  std::function<bool(int32_t token, int32_t position)> faults = [](int32_t, int32_t) { return false; };
  bool nan_logits = false;
  bool throw_next = false;
  int64_t steps = 0;
};

class FakeExecutable : public Executable {
 public:
  FakeExecutable(const Graph& graph, const ExecutableLimits& limits, std::shared_ptr<FakeScript> script)
      : graph_(graph), limits_(limits), script_(std::move(script)) {}

  size_t scratch_bytes() const override { return 4096; }

  StepOutputs run(const StepInputs& in) override {
    EXPECT_GT(in.tokens.size(), 0u);
    EXPECT_LE(int32_t(in.tokens.size()), limits_.max_tokens);
    EXPECT_LE(int32_t(in.logit_rows.size()), limits_.max_logit_rows);
    EXPECT_TRUE(std::is_sorted(in.logit_rows.begin(), in.logit_rows.end()));
    ++script_->steps;
    faults_.assign(in.tokens.size(), 0);
    row_hash_.assign(in.tokens.size(), 0);
    int32_t next = 0;
    for (const SequenceRows& rows : in.sequences) {
      EXPECT_EQ(rows.first_row, next);
      next += rows.rows;
      run_sequence(in, rows);
    }
    EXPECT_EQ(next, int32_t(in.tokens.size()));
    if (std::exchange(script_->throw_next, false)) throw std::runtime_error("scripted failure");

    logits_.resize(in.logit_rows.size() * size_t(graph_.vocab));
    for (size_t i = 0; i < in.logit_rows.size(); ++i)
      for (int32_t v = 0; v < graph_.vocab; ++v)
        logits_[i * size_t(graph_.vocab) + size_t(v)] =
            float(fake_mix(row_hash_[size_t(in.logit_rows[i])] + uint64_t(v)) >> 40) * 0x1p-20f - 8.0f;
    if (script_->nan_logits && !logits_.empty()) logits_[0] = 0.0f / 0.0f;
    return {logits_, faults_};
  }

 private:
  void run_sequence(const StepInputs& in, const SequenceRows& rows) {
    EXPECT_EQ(rows.kv.size(), graph_.kv_groups.size());
    for (const KvView& view : rows.kv) {
      const int32_t end = rows.first_position + rows.rows;
      check_runs(view, rows.first_position, end);
      for (int32_t r = 0; r < rows.rows; ++r) {
        const int32_t position = rows.first_position + r, token = in.tokens[size_t(rows.first_row + r)];
        if (script_->faults(token, position)) faults_[size_t(rows.first_row + r)] = 1;
        uint64_t& slot = slot_of(view, position);
        slot = fake_mix(uint64_t(token) << 32 | uint64_t(position)) | 1;
        row_hash_[size_t(rows.first_row + r)] =
            fake_mix(row_hash_[size_t(rows.first_row + r)] ^ visible_hash(view, position));
      }
    }
  }

  static void check_runs(const KvView& view, int32_t first_position, int32_t end) {
    ASSERT_FALSE(view.runs.empty());
    int32_t next = view.runs[0].first_position;
    EXPECT_LE(next, view.window == 0 ? 0 : std::max(0, first_position - view.window + 1));
    for (const KvRun& run : view.runs) {
      EXPECT_EQ(run.first_position, next);
      next += run.length;
    }
    EXPECT_EQ(next, end);
  }

  static uint64_t& slot_of(const KvView& view, int32_t position) {
    const size_t run = size_t((position - view.runs[0].first_position) / kPageTokens);
    return reinterpret_cast<uint64_t*>(view.runs[run].page)[position % kPageTokens];
  }

  static uint64_t visible_hash(const KvView& view, int32_t position) {
    uint64_t h = 1;
    const int32_t first = view.window == 0 ? 0 : std::max(0, position - view.window + 1);
    for (int32_t p = first; p <= position; ++p)
      h = fake_mix(h ^ slot_of(view, p));
    return h;
  }

  const Graph& graph_;
  ExecutableLimits limits_;
  std::shared_ptr<FakeScript> script_;
  std::vector<float> logits_;
  std::vector<uint8_t> faults_;
  std::vector<uint64_t> row_hash_;
};

class FakeBackend : public Backend {
 public:
  explicit FakeBackend(std::shared_ptr<FakeScript> script) : script_(std::move(script)) {}
  std::string name() const override { return "fake"; }
  bool supports(const KvCodec& codec) const override { return codec.name != std::string_view("bf16"); }
  const RowKernels& row_kernels() const override { return kPlainRows; }
  Result<std::unique_ptr<Executable>> compile(const Graph& graph, const WeightSet&,
                                              const ExecutableLimits& limits) override {
    return std::unique_ptr<Executable>(std::make_unique<FakeExecutable>(graph, limits, script_));
  }

 private:
  std::shared_ptr<FakeScript> script_;
};

// A graph that only says which KV groups there are.
inline Graph fake_graph(int32_t window = 0) {
  Graph graph;
  graph.vocab = kFakeVocab;
  graph.kv_groups.push_back({.layers = 1, .kv_heads = 1, .head_dim = 16});
  if (window > 0) graph.kv_groups.push_back({.layers = 1, .kv_heads = 1, .head_dim = 16, .window = window});
  return graph;
}

}  // namespace invar
