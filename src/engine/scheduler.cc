#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/trace.h"

namespace invar {

namespace {

// A prompt sits a step out if it saves so many tokens, which another one computes meanwhile.
constexpr int32_t kWorthWaiting = 16;

// Of the time that a step with prompts may take at most, what it is planned to take: how long steps take
// varies by about a quarter. Where decode rows alone need nearly that, prompts have this share of the stall
// bound.
constexpr double kPlannedShare = 0.7, kLeastStallShare = 0.5;

// Somebody waits for its next token.
bool streams(const std::unique_ptr<Sequence>& sequence) {
  return sequence->generated() > 0;
}

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits, PrefixCache* prefixes,
                     std::span<const KvPlacement> placements)
    : limits_(limits), prefixes_(prefixes), placements_(placements) {
  CHECK(limits.max_running >= 1 && limits.max_running <= limits.max_step_tokens &&
        limits.max_running <= limits.max_logit_rows);
}

void Scheduler::add(std::unique_ptr<Sequence> sequence) {
  sequence->set_place(next_serial_++, 0);
  waiting_.add(std::move(sequence));
}

const Plan& Scheduler::plan() {
  Traced span("plan", SpanKind::kStepPart);
  plan_.rows.clear();
  plan_.cut_prompts = plan_.preempted = plan_.following = plan_.reused_tokens = 0;
  tokens_left_ = limits_.max_step_tokens;
  logits_left_ = limits_.max_logit_rows;
  admit();
  // Preemption takes from the far end, so what is before i stays where it is.
  int32_t spare = tokens_left_ - int32_t(running_.size());  // so that each gets one
  for (size_t i = 0; i < running_.size(); ++i) {
    if (!running_[i]->goes_first()) continue;
    const int32_t tokens = std::min(running_[i]->pending(), 1 + spare);
    spare -= tokens - 1;
    give(*running_[i], tokens);
  }
  choose_prompts();
  share_among_prompts();
  describe();
  return plan_;
}

void Scheduler::admit() {
  while (!waiting_.empty() && int32_t(running_.size()) < limits_.max_running) {
    plan_.reused_tokens += waiting_.next()->reuse(false);
    if (!fits_now(*waiting_.next())) return;
    std::unique_ptr<Sequence> sequence = waiting_.take_next();
    waiting_.started(sequence->tenant());
    const auto behind = [](const Rank& rank, const auto& other) { return rank < other->rank(); };
    running_.insert(std::upper_bound(running_.begin(), running_.end(), sequence->rank(), behind),
                    std::move(sequence));
  }
}

// Whether the pages that running sequences still need for their known tokens leave enough for this one's.
bool Scheduler::fits_now(const Sequence& sequence) const {
  if (running_.empty()) return true;
  for (int32_t g = 0; g < int32_t(placements_.size()); ++g) {
    int64_t needed = missing_pages(sequence, g);
    for (const auto& other : running_)
      needed += missing_pages(*other, g);
    if (needed > prefixes_->obtainable(g)) return false;
  }
  return true;
}

// What the sequence does not hold yet of the pages for its known tokens and one more, its own copy of a
// shared tail among them.
int32_t Scheduler::missing_pages(const Sequence& sequence, int32_t group) const {
  const KvCache& cache = sequence.cache();
  const int32_t peak = placements_[size_t(group)].peak_pages(sequence.length() + 1, limits_.max_step_tokens);
  return std::max(0, peak - cache.pages(group)) + (cache.tail_shared(group) ? 1 : 0);
}

// Those that have something to compute which no older one computes in this step. So equal prompts follow one
// of them, page by page, and when that one goes the next one takes over.
void Scheduler::choose_prompts() {
  prompts_.clear();
  for (const auto& sequence : running_) {
    if (sequence->goes_first()) continue;
    plan_.reused_tokens += sequence->reuse(false);
    const bool follows = std::any_of(prompts_.begin(), prompts_.end(), [&](const Sequence* older) {
      return sequence->tokens_to_come_from(*older) >= kWorthWaiting;
    });
    if (follows) {
      ++plan_.following;
    } else {
      plan_.reused_tokens += sequence->reuse(true);
      prompts_.push_back(sequence.get());
    }
  }
}

double Scheduler::time_for_prompts() const {
  const double stall = double(limits_.max_stall_ns), decode = cost_.predict_ns(shape());
  return std::max((decode + stall) * kPlannedShare - decode, stall * kLeastStallShare);
}

// What decode rows leave of the token budget, and of the time where somebody waits for the next token. One
// token at least goes to a prompt, however little time there is, so that it ends.
void Scheduler::share_among_prompts() {
  if (prompts_.empty()) return;
  const bool hurried = limits_.max_stall_ns > 0 && std::any_of(running_.begin(), running_.end(), streams);
  double time_left = hurried ? time_for_prompts() : 0;
  int32_t room = tokens_left_;
  if (hurried) {
    const auto furthest = std::max_element(prompts_.begin(), prompts_.end(), [](auto* a, auto* b) {
      return a->cache().length() < b->cache().length();
    });
    room = std::clamp(cost_.tokens_within(time_left, (*furthest)->cache().length()), 1, room);
  }
  const int32_t chunk = limits_.prefill_chunk > 0 ? limits_.prefill_chunk : limits_.max_step_tokens;
  const std::span<const int32_t> shares = shares_.divide(prompts_, room, chunk);
  bool any = false;
  for (size_t i = 0, p = 0; i < running_.size() && p < prompts_.size(); ++i) {
    if (running_[i].get() != prompts_[p]) continue;
    Sequence& prompt = *prompts_[p];
    const int32_t position = prompt.cache().length();
    int32_t tokens = shares[p++];
    if (hurried) {
      tokens = std::min(tokens, std::max(cost_.tokens_within(time_left, position), any ? 0 : 1));
      time_left = std::max(0.0, time_left - cost_.prompt_ns(position, tokens));
    }
    give(prompt, tokens);
    any = any || tokens > 0;
  }
}

// A row of up to `tokens` tokens, fewer where the budgets end, none where there are no pages.
void Scheduler::give(Sequence& sequence, int32_t tokens) {
  int32_t n = std::min(tokens, tokens_left_);
  while (n > 0 && sequence.logits_wanted(n) > logits_left_)
    --n;
  if (n == 0 || !reserve(sequence, n)) return;
  const int32_t logits = sequence.logits_wanted(n);
  plan_.rows.push_back(
      {&sequence, &sequence.cache(), sequence.next_tokens(n), sequence.cache().length(), logits});
  tokens_left_ -= n;
  logits_left_ -= logits;
}

bool Scheduler::reserve(Sequence& sequence, int32_t tokens) {
  while (!make_room(sequence, tokens) || !sequence.cache().reserve(tokens)) {
    if (take_pages_from_waiting()) continue;
    if (running_.back().get() == &sequence) return false;  // nobody behind it: it sits this step out
    preempt_last();
  }
  return true;
}

bool Scheduler::make_room(const Sequence& sequence, int32_t tokens) {
  for (int32_t g = 0; g < int32_t(placements_.size()); ++g)
    if (!prefixes_->make_room(g, sequence.cache().pages_to_reserve(g, tokens))) return false;
  return true;
}

bool Scheduler::take_pages_from_waiting() {
  Sequence* last = waiting_.last_with_pages();
  if (last == nullptr) return false;
  if (last->times().scheduled == 0) {
    last->forget_found();
  } else {  // a fork: what it loses was computed for it
    last->preempt();
    ++plan_.preempted;
  }
  return true;
}

void Scheduler::preempt_last() {
  Sequence* victim = running_.back().get();
  const auto row =
      std::find_if(plan_.rows.begin(), plan_.rows.end(), [&](const Row& r) { return r.sequence == victim; });
  if (row != plan_.rows.end()) {
    tokens_left_ += int32_t(row->tokens.size());
    logits_left_ += row->logits;
    plan_.rows.erase(row);
  }
  victim->preempt();
  waiting_.stopped(victim->tenant());
  waiting_.add(std::move(running_.back()));
  running_.pop_back();
  ++plan_.preempted;
}

StepShape Scheduler::shape() const {
  StepShape shape;
  for (const Row& row : plan_.rows) {
    const int32_t tokens = int32_t(row.tokens.size());
    const int64_t reads = positions_read(row.first_position, tokens);
    if (row.sequence->goes_first()) {
      shape.decode_rows += tokens;
      shape.decode_reads += reads;
    } else {
      shape.prompt_tokens += tokens;
      shape.prompt_reads += reads;
    }
  }
  return shape;
}

void Scheduler::describe() {
  for (const Row& row : plan_.rows)
    plan_.cut_prompts += int32_t(row.tokens.size()) < row.sequence->pending();
  plan_.shape = shape();
  plan_.predicted_ns = cost_.predict_ns(plan_.shape);
}

void Scheduler::add_forks(const Sequence& parent, std::vector<std::unique_ptr<Sequence>> forks) {
  int32_t choice = 0;
  for (std::unique_ptr<Sequence>& fork : forks) {
    fork->set_place(parent.rank().serial, ++choice);
    touch(*fork);
    waiting_.add(std::move(fork));
  }
}

void Scheduler::retire() {
  const auto settle = [](std::unique_ptr<Sequence>& sequence) {
    sequence->drop_finished_forks();
    if (!sequence->finished()) return;
    if (auto next = sequence->successor()) {
      sequence = std::move(next);
    } else {
      sequence->leave_pages();
    }
  };
  for (const Sequence* sequence : touched_)
    waiting_.settle(*sequence, settle);
  touched_.clear();
  std::for_each(running_.begin(), running_.end(), settle);
  std::erase_if(running_, [&](const std::unique_ptr<Sequence>& sequence) {
    if (sequence->finished()) waiting_.stopped(sequence->tenant());
    return sequence->finished();
  });
}

}  // namespace invar
