#pragma once
// Scheduler: which sequences take how many tokens in the next step. Engine thread only; knows nothing of
// tensors. Decode rows first, then prompts share what is left of the budget. When pages run out the youngest
// sequence that has any gives them back and is computed again later; the oldest one can always go on, so
// every sequence ends.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "engine/batch.h"
#include "engine/sequence.h"
#include "kv/prefix_cache.h"

namespace invar {

struct SchedulerLimits {
  int32_t max_step_tokens;
  int32_t prefill_chunk;  // per sequence and step; 0 = up to the budget
  int32_t max_running;  // sequences; at most max_step_tokens and max_logit_rows, so that each gets its token
  int32_t max_logit_rows;
};

struct Plan {
  std::vector<Row> rows;    // each with its slots reserved
  int32_t cut_prompts = 0;  // rows that leave tokens pending
  int32_t preempted = 0;
  int32_t reused_tokens = 0;  // that others had computed
  int32_t following = 0;      // prompts that sat out, because another one computes what they need
};

class Scheduler {
 public:
  Scheduler(const SchedulerLimits& limits, PrefixCache* prefixes, std::span<const KvPlacement> placements);

  void add(std::unique_ptr<Sequence> sequence) { waiting_.push_back(std::move(sequence)); }
  const Plan& plan();
  // Forks that split off: next in line, in their order.
  void add_next(std::vector<std::unique_ptr<Sequence>> forks);
  // Destroys the finished ones; of those with forks the next one takes the place.
  void retire();

  int32_t running() const { return int32_t(running_.size()); }
  bool empty() const { return running_.empty() && waiting_.empty(); }
  // Calls f(Sequence&) for every sequence, running, waiting or fork of another one. f must not add or remove
  // any.
  template <class F>
  void for_each(F f) const {
    const auto with_forks = [&f](const std::unique_ptr<Sequence>& sequence) {
      f(*sequence);
      for (const auto& fork : sequence->forks())
        f(*fork);
    };
    std::for_each(running_.begin(), running_.end(), with_forks);
    std::for_each(waiting_.begin(), waiting_.end(), with_forks);
  }

 private:
  void admit();
  bool fits_now(const Sequence& sequence) const;
  int32_t missing_pages(const Sequence& sequence, int32_t group) const;
  void choose_prompts();
  int32_t fair_share() const;
  void give(Sequence& sequence, int32_t tokens);
  bool reserve(Sequence& sequence, int32_t tokens);
  bool make_room(const Sequence& sequence, int32_t tokens);
  bool take_pages_from_waiting();
  void preempt_youngest();

  SchedulerLimits limits_;
  PrefixCache* prefixes_;
  std::span<const KvPlacement> placements_;
  // By age, the oldest first; everything running is older than everything waiting. A fork is as old as the
  // moment at which it split off. Of those that wait, new ones have no pages.
  std::vector<std::unique_ptr<Sequence>> running_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  Plan plan_;
  int32_t tokens_left_ = 0, logits_left_ = 0;  // of the step being planned
  std::vector<Sequence*> prompts_;             // that take part in the step being planned
  mutable std::vector<int32_t> wants_;
};

}  // namespace invar
