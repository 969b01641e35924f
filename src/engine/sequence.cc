#include "engine/sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace invar {
namespace {

bool needs_counts(const SamplingParams& p) {
  return p.repetition_penalty != 1.0f || p.frequency_penalty != 0.0f || p.presence_penalty != 0.0f;
}

}  // namespace

Sequence::Sequence(uint64_t arrival, GenerateRequest request, std::shared_ptr<Stream> stream, KvCache cache,
                   int32_t context)
    : arrival_(arrival),
      request_(std::move(request)),
      stream_(std::move(stream)),
      cache_(std::move(cache)),
      context_(context),
      prompt_length_(int32_t(request_.prompt.size())),
      counting_(needs_counts(request_.sampling)),
      tokens_(std::move(request_.prompt)) {
  tokens_.reserve(size_t(std::min<int64_t>(int64_t(prompt_length_) + request_.max_tokens, context)));
  if (counting_)
    for (const int32_t token : tokens_)
      counts_.add_prompt(token);
}

int32_t Sequence::logits_wanted(int32_t tokens) const {
  const int32_t first = cache_.length(), end = first + tokens;
  int32_t wanted = 0;
  if (request_.all_prompt_logits)
    wanted = std::max(0, std::min(end, prompt_length_) - std::max(first, computed_));
  const bool chooses = end == length() && request_.max_tokens > 0;
  const bool counted = wanted > 0 && end <= prompt_length_;
  return wanted + (chooses && !counted ? 1 : 0);
}

void Sequence::commit(int32_t tokens, std::span<const float> logits) {
  const int32_t wanted = logits_wanted(tokens), end = cache_.length() + tokens;
  cache_.commit(tokens);
  if (request_.on_logits && wanted > 0) {
    const size_t vocab = logits.size() / size_t(wanted);
    for (int32_t i = 0; i < wanted; ++i)
      request_.on_logits(end - wanted + i, logits.subspan(size_t(i) * vocab, vocab));
  }
  computed_ = std::max(computed_, end);
  if (request_.max_tokens == 0 && pending() == 0) finish(FinishReason::kLength);
}

Result<Choice> Sequence::choose(std::span<const float> logits, Sampler& sampler,
                                std::span<uint32_t> mask_scratch) {
  const bool masked = request_.guard != nullptr && request_.guard->mask(mask_scratch);
  return sampler.choose({logits, request_.sampling, counts_,
                         masked ? std::span<const uint32_t>(mask_scratch) : std::span<const uint32_t>(),
                         length()});
}

bool Sequence::stops_at(int32_t token) const {
  return !request_.ignore_eos &&
         std::find(request_.stop_ids.begin(), request_.stop_ids.end(), token) != request_.stop_ids.end();
}

void Sequence::append(int32_t token) {
  tokens_.push_back(token);
  if (counting_) counts_.add_generated(token);
}

void Sequence::take(Choice choice) {
  forced_.clear();
  size_t next_forced = 0;
  TokenEvent event{
      .token = choice.token, .logprob = choice.logprob, .alternatives = std::move(choice.alternatives)};
  while (true) {
    const int32_t token = *event.token;
    if (stops_at(token)) return finish(FinishReason::kStop);
    const Verdict verdict = request_.guard != nullptr ? request_.guard->accept(token) : Verdict();
    if (verdict.action == Verdict::Action::kStopBefore) return finish(FinishReason::kStop);
    append(token);
    if (verdict.action == Verdict::Action::kStop) {
      event.finish = FinishReason::kStop;
    } else if (generated() >= request_.max_tokens || length() >= context_) {
      event.finish = FinishReason::kLength;
    }
    finish_ = event.finish;
    events_.push_back(std::exchange(event, TokenEvent()));
    if (finished()) return;
    if (next_forced == forced_.size()) {
      forced_.assign(verdict.forced.begin(), verdict.forced.end());
      next_forced = 0;
      if (forced_.empty()) return;
    }
    event.token = forced_[next_forced++];
  }
}

void Sequence::finish(FinishReason reason) {
  finish_ = reason;
  events_.push_back({.finish = reason});
}

void Sequence::fail(Status error) {
  if (finished()) return;  // its closing event is on the way already
  finish_ = FinishReason::kError;
  events_.push_back({.finish = FinishReason::kError, .error = std::move(error)});
}

int32_t Sequence::publish() {
  int32_t tokens = 0;
  for (TokenEvent& event : events_) {
    tokens += event.token.has_value();
    stream_->push(std::move(event));
  }
  events_.clear();
  return tokens;
}

}  // namespace invar
