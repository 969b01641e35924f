#include "engine/scheduler.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace invar {

namespace {

// A prompt sits a step out if it saves so many tokens, which another one computes meanwhile.
constexpr int32_t kWorthWaiting = 16;

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits, PrefixCache* prefixes,
                     std::span<const KvPlacement> placements)
    : limits_(limits), prefixes_(prefixes), placements_(placements) {
  CHECK(limits.max_running >= 1 && limits.max_running <= limits.max_step_tokens &&
        limits.max_running <= limits.max_logit_rows);
}

const Plan& Scheduler::plan() {
  plan_.rows.clear();
  plan_.cut_prompts = plan_.preempted = plan_.following = plan_.reused_tokens = 0;
  tokens_left_ = limits_.max_step_tokens;
  logits_left_ = limits_.max_logit_rows;
  admit();
  // Preemption takes from the young end, so what is before i stays where it is.
  for (size_t i = 0; i < running_.size(); ++i)
    if (running_[i]->pending() == 1) give(*running_[i], 1);
  choose_prompts();
  const int32_t share = fair_share();
  for (size_t i = 0, p = 0; i < running_.size() && p < prompts_.size(); ++i) {
    if (running_[i].get() != prompts_[p]) continue;
    give(*prompts_[p], std::min(prompts_[p]->pending(), share));
    ++p;
  }
  for (const Row& row : plan_.rows)
    plan_.cut_prompts += int32_t(row.tokens.size()) < row.sequence->pending();
  return plan_;
}

void Scheduler::admit() {
  while (!waiting_.empty() && int32_t(running_.size()) < limits_.max_running) {
    plan_.reused_tokens += waiting_.front()->reuse(false);
    if (!fits_now(*waiting_.front())) return;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
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
    if (sequence->pending() <= 1) continue;
    plan_.reused_tokens += sequence->reuse(true);
    const bool follows = std::any_of(prompts_.begin(), prompts_.end(), [&](const Sequence* older) {
      return sequence->tokens_to_come_from(*older) >= kWorthWaiting;
    });
    if (follows) {
      ++plan_.following;
    } else {
      prompts_.push_back(sequence.get());
    }
  }
}

// The highest number of tokens that every prompt can have at once; short prompts leave theirs to long ones.
// Not below a page, so that many prompts finish one after the other instead of all at the end.
int32_t Scheduler::fair_share() const {
  const int32_t chunk = limits_.prefill_chunk > 0 ? limits_.prefill_chunk : limits_.max_step_tokens;
  wants_.clear();
  for (const Sequence* prompt : prompts_)
    wants_.push_back(std::min(prompt->pending(), chunk));
  std::sort(wants_.begin(), wants_.end());
  int32_t left = tokens_left_, share = chunk;
  for (size_t i = 0; i < wants_.size(); ++i) {
    const int32_t level = left / int32_t(wants_.size() - i);
    if (wants_[i] > level) {
      share = std::max(level, kPageTokens);
      break;
    }
    left -= wants_[i];
  }
  return std::min(share, chunk);
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
    if (running_.back().get() == &sequence) return false;  // nobody younger: it sits this step out
    preempt_youngest();
  }
  return true;
}

bool Scheduler::make_room(const Sequence& sequence, int32_t tokens) {
  for (int32_t g = 0; g < int32_t(placements_.size()); ++g)
    if (!prefixes_->make_room(g, sequence.cache().pages_to_reserve(g, tokens))) return false;
  return true;
}

// From the youngest that has any: a fork that has not run yet, or one that found a known prefix.
bool Scheduler::take_pages_from_waiting() {
  const auto has_pages = [](const std::unique_ptr<Sequence>& s) { return s->cache().length() > 0; };
  const auto youngest = std::find_if(waiting_.rbegin(), waiting_.rend(), has_pages);
  if (youngest == waiting_.rend()) return false;
  (*youngest)->release_pages();
  ++plan_.preempted;
  return true;
}

void Scheduler::preempt_youngest() {
  Sequence* victim = running_.back().get();
  const auto row =
      std::find_if(plan_.rows.begin(), plan_.rows.end(), [&](const Row& r) { return r.sequence == victim; });
  if (row != plan_.rows.end()) {
    tokens_left_ += int32_t(row->tokens.size());
    logits_left_ += row->logits;
    plan_.rows.erase(row);
  }
  victim->release_pages();
  waiting_.push_front(std::move(running_.back()));
  running_.pop_back();
  ++plan_.preempted;
}

void Scheduler::add_next(std::vector<std::unique_ptr<Sequence>> forks) {
  waiting_.insert(waiting_.begin(), std::make_move_iterator(forks.begin()),
                  std::make_move_iterator(forks.end()));
}

void Scheduler::retire() {
  const auto settle = [](auto& sequences) {
    for (std::unique_ptr<Sequence>& sequence : sequences) {
      sequence->drop_finished_forks();
      if (!sequence->finished()) continue;
      if (auto next = sequence->successor()) {
        sequence = std::move(next);
      } else {
        sequence->leave_pages();
      }
    }
    std::erase_if(sequences, [](const std::unique_ptr<Sequence>& s) { return s->finished(); });
  };
  settle(running_);
  settle(waiting_);
}

}  // namespace invar
