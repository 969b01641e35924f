#pragma once
// The requests that random schedules are made of: plain values drawn by number, so that what one of them
// answers alone can be kept. Prompts come from a few stems and part from them around the edges of pages.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <random>
#include <vector>

#include "engine/request.h"
#include "engine/testing/engine_fixture.h"
#include "kv/codec.h"
#include "sampling/numbers.h"

namespace invar {

class ScheduleRandom {
 public:
  explicit ScheduleRandom(uint64_t seed) : engine_(seed) {}
  int32_t between(int32_t low, int32_t high) { return low + int32_t(engine_() % uint64_t(high - low + 1)); }
  bool one_in(int32_t n) { return between(1, n) == 1; }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[size_t(between(0, int32_t(values.size()) - 1))];
  }
  uint64_t bits() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

struct ScheduleRequest {
  std::vector<int32_t> prompt;
  int32_t max_tokens = 0;
  int32_t choices = 1;
  SamplingParams sampling;
  std::vector<int32_t> stop_ids;
  bool ignore_eos = false, guarded = false, all_prompt_logits = false;
  int32_t prompt_logprobs = -1;
  uint64_t salt = 0;

  // As the engine takes it. choice: what the lone run of that choice asks for.
  GenerateRequest make(int32_t choice = 0) const {
    GenerateRequest r;
    r.prompt = prompt;
    r.max_tokens = max_tokens;
    r.sampling = sampling;
    r.sampling.sample_index += uint32_t(choice);
    r.stop_ids = stop_ids;
    r.ignore_eos = ignore_eos;
    if (guarded) r.guard = std::make_unique<MoodyGuard>();
    r.all_prompt_logits = all_prompt_logits && choice == 0;
    r.prompt_logprobs = choice == 0 ? prompt_logprobs : -1;
    r.cache_salt = salt;
    return r;
  }
};

inline constexpr int32_t kStems = 3, kMostShared = 4 * kPageTokens + 1, kMostOwn = 70, kMostAnswered = 70;
inline constexpr int32_t kLongestScheduled = kMostShared + kMostOwn + kMostAnswered;  // positions

inline void draw_sampling(ScheduleRandom& random, int32_t vocab, SamplingParams* p) {
  p->temperature = random.pick({0.0f, 0.0f, 0.7f, 1.0f});
  p->seed = random.bits();
  p->sample_index = uint32_t(random.pick({0, 0, 5}));
  p->top_k = random.pick({0, 0, 1, 10});
  p->top_p = random.pick({1.0f, 1.0f, 0.9f});
  p->min_p = random.pick({0.0f, 0.0f, 0.02f});
  p->repetition_penalty = random.pick({1.0f, 1.0f, 1.3f});
  p->frequency_penalty = random.pick({0.0f, 0.0f, 0.5f});
  p->presence_penalty = random.pick({0.0f, 0.0f, 0.4f});
  p->logprobs = random.pick({-1, -1, 0, 3});
  p->penalty_last_n = random.pick({-1, -1, 0, 20});
  p->min_tokens = random.pick({0, 0, 0, 9});
  if (random.one_in(3)) {  // each of them alone or with others
    if (random.one_in(2)) p->typical_p = 0.9f;
    if (random.one_in(2)) p->top_n_sigma = 1.5f;
    if (random.one_in(2)) p->xtc_probability = 0.5f, p->xtc_threshold = 0.02f;
    if (random.one_in(2)) p->dry_multiplier = 0.8f, p->dry_allowed_length = 1;
    if (random.one_in(2) && p->temperature > 0) p->dynatemp_range = 0.3f;
  } else if (random.one_in(4)) {  // carries state from token to token
    p->top_k = 0, p->top_p = 1, p->min_p = 0;
    p->temperature = 0.8f;
    p->mirostat = random.between(1, 2);
    p->mirostat_tau = 4;
  }
  if (random.one_in(4))
    for (int32_t i = 0; i < 5; ++i)
      p->logit_bias.emplace_back(i * 7 % vocab, random.pick({-2.0f, 3.0f, -INFINITY}));
  // Any value of any number there is, those of later samplers included, where all together stay allowed.
  if (random.one_in(6)) {
    for (const SamplingNumber& number : sampling_numbers()) {
      if (!random.one_in(8)) continue;
      const double low = std::max(number.min, -2.0), high = std::min(number.max, number.whole() ? 20.0 : 2.0);
      const double share = random.between(0, 64) / 64.0, value = low + (high - low) * share;
      SamplingParams drawn = *p;
      number.set(number.whole() ? std::floor(value) : value, &drawn);
      if (drawn.validate(vocab).ok()) *p = drawn;
    }
  }
}

// Number `number` of those that a model of this vocabulary is asked.
inline ScheduleRequest schedule_request(uint64_t number, int32_t vocab) {
  ScheduleRandom random(number * 0x9E3779B97F4A7C15 + uint64_t(vocab));
  ScheduleRequest r;
  const int32_t stem = random.between(0, kStems - 1);
  const int32_t pages = random.pick({0, 1, 1, 2, 2, 3, 4});
  int32_t shared = pages * kPageTokens + random.pick({-1, 0, 1, random.between(-40, 40)});
  shared = std::clamp(shared, 0, kMostShared);
  ScheduleRandom stem_random(uint64_t(stem) + 1);
  for (int32_t i = 0; i < shared; ++i)
    r.prompt.push_back(stem_random.between(0, vocab - 1));
  const int32_t own = random.pick({1, 1, random.between(1, 8), random.between(1, kMostOwn)});
  for (int32_t i = 0; i < own; ++i)
    r.prompt.push_back(random.one_in(2) ? stem_random.between(0, vocab - 1) : random.between(0, vocab - 1));
  r.max_tokens =
      random.pick({1, random.between(2, 12), random.between(2, 20), random.between(10, kMostAnswered)});
  if (random.one_in(12)) r.max_tokens = 0;
  if (random.one_in(5)) {  // short at first, long in the end: what preemption is for
    r.prompt.resize(std::min<size_t>(r.prompt.size(), size_t(random.between(1, 50))));
    r.max_tokens = random.between(90, 150);
    r.ignore_eos = true;
  }
  draw_sampling(random, vocab, &r.sampling);
  if (random.one_in(3)) r.choices = random.between(2, 4);
  r.ignore_eos = r.ignore_eos || random.one_in(2);
  for (int32_t i = 0; i < 12; ++i)
    r.stop_ids.push_back(random.between(0, vocab - 1));
  r.guarded = random.one_in(5);
  r.all_prompt_logits = random.one_in(7);
  r.prompt_logprobs = random.one_in(7) ? random.between(0, 3) : -1;
  r.salt = random.pick({0u, 0u, 0u, 0u, 1u});
  return r;
}

}  // namespace invar
