// An engine over the scripted backend says what guards dictate, through the path that every token takes.
#include <gtest/gtest.h>

#include "backends/scripted/scripted_backend.h"
#include "engine/engine.h"

namespace invar {
namespace {

constexpr int32_t kVocab = 50000, kEnd = 2;

// Says its tokens in groups: the first of a group is chosen, the rest is forced.
class Dictation : public Guard {
 public:
  explicit Dictation(std::vector<std::vector<int32_t>> groups) : groups_(std::move(groups)) {}
  bool mask(std::span<uint32_t> words) override {
    std::fill(words.begin(), words.end(), 0);
    const int32_t token = next_ < groups_.size() ? groups_[next_][0] : kEnd;
    words[size_t(token) / 32] = 1u << (token % 32);
    return true;
  }
  Verdict accept(int32_t token) override {
    if (rest_ > 0) return --rest_, Verdict();
    EXPECT_EQ(token, groups_[next_][0]);
    rest_ = groups_[next_].size() - 1;
    return {.forced = std::span<const int32_t>(groups_[next_++]).subspan(1)};
  }
  std::unique_ptr<Guard> clone() const override { return std::make_unique<Dictation>(*this); }

 private:
  std::vector<std::vector<int32_t>> groups_;
  size_t next_ = 0, rest_ = 0;
};

std::unique_ptr<Engine> engine(EngineOptions options = {}) {
  auto model = make_scripted_model(kVocab);
  options.memory_bytes = uint64_t{16} << 20;
  auto made = Engine::create(EngineModel{&model->graph, &model->weights, 8192, 0, model},
                             make_scripted_backend(), options);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(*made);
}

GenerateRequest dictated(const std::vector<std::vector<int32_t>>& groups, uint64_t seed) {
  GenerateRequest r;
  r.prompt = {1, 2, 3};
  r.max_tokens = 1000;
  r.sampling.seed = seed;
  r.stop_ids = {kEnd};
  r.guard = std::make_unique<Dictation>(groups);
  return r;
}

std::vector<int32_t> answer_of(Stream& stream) {
  std::vector<int32_t> tokens;
  while (true) {
    const TokenEvent event = stream.next();
    if (event.token) tokens.push_back(*event.token);
    if (event.finish == FinishReason::kNone) continue;
    EXPECT_EQ(event.finish, FinishReason::kStop);
    return tokens;
  }
}

TEST(ScriptedEngine, says_what_the_guards_dictate_to_eight_requests_at_once) {
  auto e = engine({.max_step_tokens = 16, .max_batch = 8});
  std::vector<std::vector<int32_t>> expected;
  std::vector<std::shared_ptr<Stream>> streams;
  for (int32_t i = 0; i < 8; ++i) {
    std::vector<std::vector<int32_t>> groups;
    expected.emplace_back();
    for (int32_t g = 0; g < 20 + i; ++g) {
      groups.emplace_back();
      for (int32_t k = 0; k <= (g + i) % 3; ++k)
        groups.back().push_back(100 + (i * 7919 + g * 31 + k) % 40000);
      expected.back().insert(expected.back().end(), groups.back().begin(), groups.back().end());
    }
    auto stream = e->submit(dictated(groups, uint64_t(i)));
    ASSERT_TRUE(stream.ok());
    streams.push_back(*stream);
  }
  e->start();
  for (size_t i = 0; i < streams.size(); ++i)
    EXPECT_EQ(answer_of(*streams[i]), expected[i]);
}

TEST(ScriptedEngine, choices_say_the_same) {
  auto e = engine();
  auto streams = e->submit(dictated({{7, 8}, {9}, {49999}}, 1), 3);
  ASSERT_TRUE(streams.ok());
  e->start();
  for (const auto& stream : *streams)
    EXPECT_EQ(answer_of(*stream), (std::vector<int32_t>{7, 8, 9, 49999}));
}

TEST(ScriptedEngine, every_token_is_equally_likely) {
  auto e = engine();
  GenerateRequest r;
  r.prompt = {1};
  r.max_tokens = 1;
  r.sampling.logprobs = 2;
  auto stream = e->submit(std::move(r));
  ASSERT_TRUE(stream.ok());
  e->start();
  const TokenEvent event = (*stream)->next();
  EXPECT_FLOAT_EQ(event.logprob, -10.819778f);
  EXPECT_EQ(event.alternatives[0].token, 0);
  EXPECT_EQ(event.alternatives[1].token, 1);
}

}  // namespace
}  // namespace invar
