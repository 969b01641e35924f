#pragma once
// What engine tests share: an engine over the fake backend, and answers collected from streams.

#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "engine/engine.h"
#include "engine/guard.h"
#include "engine/testing/fake_backend.h"

namespace invar {

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<uint64_t> scores;  // of the tokens: hashes of the bits of log-probability and alternatives
  std::vector<int32_t> prompt_tokens;
  std::vector<uint64_t> prompt_scores;
  std::vector<std::pair<int32_t, uint64_t>> logits;  // position, hash of the bits
  FinishReason finish = FinishReason::kNone;
  Status error;
  int32_t cached_tokens = 0;  // of the prompt; an answer does not depend on it
  bool operator==(const Answer& o) const {
    return tokens == o.tokens && scores == o.scores && prompt_tokens == o.prompt_tokens &&
           prompt_scores == o.prompt_scores && logits == o.logits && finish == o.finish &&
           error.code() == o.error.code();
  }
};

inline auto hash_logits_into(std::vector<std::pair<int32_t, uint64_t>>* out) {
  return [out](int32_t position, std::span<const float> logits) {
    out->emplace_back(position, hash64(std::as_bytes(logits)));
  };
}

inline uint64_t score_hash(const TokenEvent& event) {
  const uint64_t alternatives = hash64(std::as_bytes(std::span(event.alternatives)));
  return fake_mix(alternatives ^ fake_mix(std::bit_cast<uint32_t>(event.logprob)));
}

// Takes what is there; true once the stream has ended.
inline bool collect(Stream& stream, Answer* answer) {
  while (auto event = stream.try_next()) {
    EXPECT_EQ(answer->finish, FinishReason::kNone) << "nothing follows the end";
    if (event->token) {
      (event->of_prompt ? answer->prompt_tokens : answer->tokens).push_back(*event->token);
      (event->of_prompt ? answer->prompt_scores : answer->scores).push_back(score_hash(*event));
    }
    answer->finish = event->finish;
    answer->error = event->error;
    answer->cached_tokens = event->prompt.cached_tokens;
  }
  return answer->finish != FinishReason::kNone;
}

// A guard whose mask, forced tokens and end hang on every token it has seen: one that missed a token, or was
// shared by two sequences, decides differently.
class MoodyGuard : public Guard {
 public:
  bool mask(std::span<uint32_t> words) override {
    if (state_ % 3 == 0) return false;
    for (size_t i = 0; i < words.size(); ++i)
      words[i] = uint32_t(fake_mix(state_ + i)) | 1u;
    return true;
  }
  Verdict accept(int32_t token) override {
    state_ = fake_mix(state_ ^ uint64_t(token));
    forced_.clear();
    if (state_ % 5 == 0)
      for (uint64_t i = 0; i <= state_ / 5 % 3; ++i)
        forced_.push_back(int32_t(fake_mix(state_ + i) % kFakeVocab));
    return {state_ % 61 == 0 ? Verdict::Action::kStop : Verdict::Action::kContinue, forced_};
  }
  std::unique_ptr<Guard> clone() const override { return std::make_unique<MoodyGuard>(*this); }

 private:
  uint64_t state_ = 1;
  std::vector<int32_t> forced_;
};

// The ids of the prompt count up; the most likely token is taken.
inline GenerateRequest greedy_request(int32_t prompt, int32_t max_tokens) {
  GenerateRequest r;
  for (int32_t i = 0; i < prompt; ++i)
    r.prompt.push_back(i % kFakeVocab);
  r.max_tokens = max_tokens;
  r.sampling.temperature = 0;
  return r;
}

struct TestEngine {
  explicit TestEngine(EngineOptions options = {}, int32_t window = 0, int32_t trained = 1024)
      : graph(fake_graph(window)), script(std::make_shared<FakeScript>()) {
    if (options.memory_bytes == 0) options.memory_bytes = uint64_t{64} << 20;
    auto created = Engine::create(EngineModel{&graph, &weights, trained, 0, nullptr},
                                  std::make_unique<FakeBackend>(script), options);
    EXPECT_TRUE(created.ok()) << created.status().message();
    engine = std::move(*created);
    engine->set_trace([this](const StepRecord& r) { trace.push_back(r); });
  }

  std::shared_ptr<Stream> submit(GenerateRequest request) {
    auto stream = engine->submit(std::move(request));
    EXPECT_TRUE(stream.ok()) << stream.status().message();
    return stream.ok() ? *stream : nullptr;
  }
  std::vector<std::shared_ptr<Stream>> submit(GenerateRequest request, int32_t choices) {
    auto streams = engine->submit(std::move(request), choices);
    EXPECT_TRUE(streams.ok()) << streams.status().message();
    return streams.ok() ? *streams : std::vector<std::shared_ptr<Stream>>();
  }
  // Steps until nothing is left to do; a bound turns an endless run into a failure.
  void drain(int most = 100000) {
    while (engine->step())
      ASSERT_GT(most--, 0) << "requests do not end";
  }
  Answer run(GenerateRequest request) {
    Answer answer;
    if (request.on_logits == nullptr) request.on_logits = hash_logits_into(&answer.logits);
    auto stream = submit(std::move(request));
    drain();
    EXPECT_TRUE(collect(*stream, &answer));
    return answer;
  }

  Graph graph;
  WeightSet weights;
  std::shared_ptr<FakeScript> script;
  std::vector<StepRecord> trace;
  std::unique_ptr<Engine> engine;
};

}  // namespace invar
