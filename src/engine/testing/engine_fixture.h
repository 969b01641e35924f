#pragma once
// What engine tests share: an engine over the fake backend, and answers collected from streams.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "engine/engine.h"
#include "engine/testing/fake_backend.h"

namespace invar {

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<std::pair<int32_t, uint64_t>> logits;  // position, hash of the bits
  FinishReason finish = FinishReason::kNone;
  Status error;
  bool operator==(const Answer& o) const {
    return tokens == o.tokens && logits == o.logits && finish == o.finish && error.code() == o.error.code();
  }
};

inline auto hash_logits_into(std::vector<std::pair<int32_t, uint64_t>>* out) {
  return [out](int32_t position, std::span<const float> logits) {
    out->emplace_back(position, hash64(std::as_bytes(logits)));
  };
}

// Takes what is there; true once the stream has ended.
inline bool collect(Stream& stream, Answer* answer) {
  while (auto event = stream.try_next()) {
    EXPECT_EQ(answer->finish, FinishReason::kNone) << "nothing follows the end";
    if (event->token) answer->tokens.push_back(*event->token);
    answer->finish = event->finish;
    answer->error = event->error;
  }
  return answer->finish != FinishReason::kNone;
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
