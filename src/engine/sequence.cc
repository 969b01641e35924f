#include "engine/sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace invar {
namespace {

bool needs_counts(const SamplingParams& p) {
  if (p.penalty_last_n == 0) return false;
  return p.repetition_penalty != 1.0f || p.frequency_penalty != 0.0f || p.presence_penalty != 0.0f;
}

}  // namespace

Sequence::Sequence(GenerateRequest request, std::shared_ptr<Stream> stream, int64_t submitted_ns,
                   PrefixCache* prefixes, KvCache cache, int32_t context, bool long_rope)
    : request_(std::move(request)),
      stream_(std::move(stream)),
      times_{.submitted = submitted_ns},
      rank_{.moment = submitted_ns + request_.priority * kPriorityStepNs},
      path_(prefixes, {request_.tenant, request_.cache_salt, long_rope}),
      cache_(std::move(cache)),
      context_(context),
      long_rope_(long_rope),
      prompt_length_(int32_t(request_.prompt.size())),
      counting_(needs_counts(request_.sampling)),
      tokens_(std::move(request_.prompt)),
      counts_(request_.sampling.penalty_last_n),
      mirostat_mu_(mirostat_start(request_.sampling)) {
  tokens_.reserve(size_t(std::min<int64_t>(int64_t(prompt_length_) + request_.max_tokens, context)));
}

// When the first token is to be chosen, not before: many may wait, and some never get there.
void Sequence::count_prompt() {
  if (!counting_ || std::exchange(counted_, true)) return;
  for (size_t n = 1; n <= tokens_.size(); ++n)
    counts_.appended(std::span(tokens_).first(n), size_t(prompt_length_));
}

bool Sequence::shows_prompt() const {
  return (request_.all_prompt_logits || request_.prompt_logprobs >= 0) && computed_ < prompt_length_;
}

// Positions whose logits somebody still waits for are to be computed.
int32_t Sequence::reuse_limit() const {
  return shows_prompt() ? computed_ : length() - 1;
}

int32_t Sequence::reuse(bool tail) {
  if (shows_prompt()) return 0;
  const int32_t all = reuse_limit(), limit = tail ? all : all / kPageTokens * kPageTokens;
  const int32_t before = cache_.length();
  const bool last = limit == all;  // nothing is left for a later lookup
  if (limit <= before && (!last || looked_up_)) return 0;
  const PrefixLookup lookup = path_.match(tokens_, limit, tail, cache_);
  const int32_t found = std::min(cache_.length(), prompt_length_);
  const bool news = cache_.length() > computed_;  // no pages that were its own before it lost them
  reused_.cached_tokens += std::max(0, found - computed_);
  computed_ = std::max(computed_, cache_.length());
  if (last && (!std::exchange(looked_up_, true) || news)) {
    reused_.lookup = lookup;
    reused_.end_position = found;
  }
  return cache_.length() - before;
}

int32_t Sequence::tokens_to_come_from(const Sequence& other) const {
  if (path_.node() == nullptr || path_.node() != other.path_.node()) return 0;
  const size_t from = size_t(path_.node()->end()), limit = size_t(std::max(reuse_limit(), 0));
  if (limit <= from) return 0;
  const auto page = [&](const std::vector<int32_t>& tokens, size_t end) {
    return std::span(tokens).subspan(from, std::min(end - from, size_t(kPageTokens)));
  };
  const int32_t common = common_tokens(page(tokens_, limit), page(other.tokens_, other.tokens_.size()));
  const int32_t end = int32_t(from) + common;
  return end - std::max(cache_.length(), std::min(end, other.cache_.length()));
}

void Sequence::release_pages() {
  cache_.clear();
  path_.leave();
}

void Sequence::preempt() {
  ++preemptions_;
  release_pages();
}

void Sequence::forget_found() {
  release_pages();
  computed_ = 0;
  reused_ = {};
  looked_up_ = false;
}

void Sequence::leave_pages() {
  path_.keep_tail(tokens_, cache_);
  release_pages();
}

int32_t Sequence::logits_wanted(int32_t tokens) const {
  const int32_t first = cache_.length(), end = first + tokens;
  int32_t wanted = 0;
  if (request_.all_prompt_logits || request_.prompt_logprobs >= 0)
    wanted = std::max(0, std::min(end, prompt_length_) - std::max(first, computed_));
  const bool chooses = end == length() && request_.max_tokens > 0;
  const bool counted = wanted > 0 && end <= prompt_length_;
  return wanted + (chooses && !counted ? 1 : 0);
}

void Sequence::scheduled(int64_t now_ns) {
  if (times_.scheduled == 0) times_.scheduled = now_ns;
}

void Sequence::commit(int32_t tokens, std::span<const float> logits, PromptScorer& scorer) {
  const int32_t wanted = logits_wanted(tokens), end = cache_.length() + tokens;
  cache_.commit(tokens);
  path_.publish(tokens_, cache_);
  cache_.expire();
  computed_ = std::max(computed_, end);
  if (wanted > 0) {
    const size_t vocab = logits.size() / size_t(wanted);
    for (int32_t i = 0; i < wanted && !finished(); ++i)
      show(end - wanted + i, logits.subspan(size_t(i) * vocab, vocab), scorer);
  }
  if (chooses()) count_prompt();
  end_without_answer();
}

// To whoever asked for the logits of a position or for the score of the prompt's token that follows it. Each
// position comes here once, because logits are wanted once.
void Sequence::show(int32_t position, std::span<const float> logits, PromptScorer& scorer) {
  if (request_.on_logits) request_.on_logits(position, logits);
  if (request_.prompt_logprobs < 0 || position >= prompt_length_) return;
  if (position == 0) events_.push_back({.token = tokens_[0], .of_prompt = true});
  if (position + 1 >= prompt_length_) return;
  Result<TokenEvent> event = scorer.score(logits, tokens_[size_t(position) + 1], request_.prompt_logprobs);
  if (!event.ok()) return fail(event.status());
  events_.push_back(std::move(*event));
}

void Sequence::end_without_answer() {
  if (request_.max_tokens == 0 && chooses()) finish(FinishReason::kLength);
}

std::vector<uint32_t> Sequence::mask(size_t words) const {
  std::vector<uint32_t> mask;
  if (request_.guard == nullptr) return mask;
  mask.resize(words);
  if (!request_.guard->mask(mask)) mask.clear();
  return mask;
}

SampleInput Sequence::sample_input(std::span<const float> logits, std::span<const uint32_t> mask) const {
  SampleInput in{logits, request_.sampling, counts_, mask, length()};
  in.history = tokens_;
  in.mirostat_mu = mirostat_mu_;
  if (generated() < request_.sampling.min_tokens && !request_.ignore_eos) in.not_yet = request_.stop_ids;
  return in;
}

bool Sequence::stops_at(int32_t token) const {
  return !request_.ignore_eos &&
         std::find(request_.stop_ids.begin(), request_.stop_ids.end(), token) != request_.stop_ids.end();
}

void Sequence::append(int32_t token) {
  tokens_.push_back(token);
  if (counting_) counts_.appended(tokens_, size_t(prompt_length_));
}

void Sequence::take(Choice choice, int32_t vocab) {
  mirostat_mu_ = choice.mirostat_mu;
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
    if (*event.token < 0 || *event.token >= vocab)
      return fail(internal_error(fmt::format(
          "the guard forced the token id {}, which is outside the vocabulary of {}", *event.token, vocab)));
  }
}

bool Sequence::end_cancelled() {
  bool any = false;
  for_each_choice([&](Sequence& choice) {
    if (!choice.stream_->cancelled()) return;
    choice.finish(FinishReason::kCancelled);
    any = true;
  });
  return any;
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

void Sequence::publish(RequestMetrics& metrics, int64_t now) {
  if (events_.empty()) return;
  int32_t tokens = 0;
  for (TokenEvent& event : events_) {
    event.published_ns = now;
    event.prompt = reused_;
    if (times_.scheduled > 0) event.queued_ns = times_.scheduled - times_.submitted;
    event.preemptions = preemptions_;
    tokens += event.token.has_value() && !event.of_prompt;
  }
  if (tokens > 0) metrics.published(times_, tokens, now);
  if (finished()) metrics.ended(times_, finish_, prompt_length_, generated(), now);
  stream_->push_all(events_);
  if (request_.notify) request_.notify();
}

void Sequence::drop_finished_forks() {
  std::erase_if(forks_, [](const std::unique_ptr<Sequence>& fork) { return fork->finished(); });
}

void Sequence::split_from(const Sequence& parent) {
  cache_ = parent.cache_.fork();
  path_.follow(parent.path_, tokens_, cache_);
  reused_ = parent.reused_;
  computed_ = cache_.length();
  times_.scheduled = parent.times_.scheduled;
  count_prompt();
  end_without_answer();
}

std::unique_ptr<Sequence> Sequence::successor() {
  drop_finished_forks();
  if (forks_.empty()) return nullptr;
  std::unique_ptr<Sequence> next = std::move(forks_.front());
  forks_.erase(forks_.begin());
  if (finish_ != FinishReason::kError) {  // a failed step leaves used slots
    next->cache_ = std::move(cache_);
    next->path_.follow(path_, next->tokens_, next->cache_);
  }
  next->rank_ = rank_;
  next->reused_ = reused_;
  next->computed_ = computed_;
  next->times_.scheduled = times_.scheduled;
  next->forks_ = std::move(forks_);
  return next;
}

}  // namespace invar
