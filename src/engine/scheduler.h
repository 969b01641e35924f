#pragma once
// Scheduler: which sequences take how many tokens in the next step. Engine thread only; knows nothing of
// tensors. Decode rows first, then prompts share what is left of the budgets: tokens, and the time by which
// they may lengthen a step in which a stream runs. When pages run out the sequence of the highest rank that
// has any gives them back and is computed again later; the lowest one can always go on, so every sequence
// ends. docs/scheduling.md

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/batch.h"
#include "engine/prompt_shares.h"
#include "engine/sequence.h"
#include "engine/step_cost.h"
#include "engine/waiting_queue.h"
#include "kv/prefix_cache.h"

namespace invar {

struct SchedulerLimits {
  int32_t max_step_tokens;
  int32_t prefill_chunk;  // per sequence and step; 0 = up to the budget
  int32_t max_running;  // sequences; at most max_step_tokens and max_logit_rows, so that each gets its token
  int32_t max_logit_rows;
  int64_t max_stall_ns = 0;  // prompts lengthen a step with streams by at most this; 0 = by any time
};

struct Plan {
  std::vector<Row> rows;    // each with its slots reserved
  int32_t cut_prompts = 0;  // rows that leave tokens pending
  int32_t preempted = 0;
  int32_t reused_tokens = 0;  // that others had computed
  int32_t following = 0;      // prompts that sat out, because another one computes what they need
  StepShape shape;
  double predicted_ns = 0;
};

class Scheduler {
 public:
  Scheduler(const SchedulerLimits& limits, PrefixCache* prefixes, std::span<const KvPlacement> placements);

  void add(std::unique_ptr<Sequence> sequence);
  const Plan& plan();
  void ran(int64_t ns) { cost_.observe(plan_.shape, ns); }  // the plan, in so much time
  // Forks that split off: behind their parent, in their order.
  void add_forks(const Sequence& parent, std::vector<std::unique_ptr<Sequence>> forks);
  // Something happens to a waiting sequence, or to a fork of it.
  void touch(Sequence& sequence) { touched_.push_back(&sequence); }
  // Destroys the finished ones among those of for_each_touched(), which begins anew; of those with forks the
  // next one takes the place.
  void retire();

  int32_t running() const { return int32_t(running_.size()); }
  int32_t waiting() const { return waiting_.size(); }
  std::span<const std::unique_ptr<Sequence>> running_sequences() const { return running_; }
  bool empty() const { return running_.empty() && waiting_.empty(); }
  // f(Sequence&) for every one that runs or waits. f must not add or remove any.
  template <class F>
  void for_each(F f) const {
    for (const auto& sequence : running_)
      f(*sequence);
    waiting_.for_each(f);
  }
  // f(Sequence&) for those to which something can have happened since retire(), and their forks: the running
  // ones and the touched ones. So a step costs nothing for each that just waits.
  template <class F>
  void for_each_touched(F f) const {
    for (const auto& sequence : running_)
      sequence->for_each_choice(f);
    for (Sequence* sequence : touched_)
      sequence->for_each_choice(f);
  }

 private:
  void admit();
  bool fits_now(const Sequence& sequence) const;
  int32_t missing_pages(const Sequence& sequence, int32_t group) const;
  void choose_prompts();
  void share_among_prompts();
  double time_for_prompts() const;  // ns, beside the rows planned so far
  void give(Sequence& sequence, int32_t tokens);
  bool reserve(Sequence& sequence, int32_t tokens);
  bool make_room(const Sequence& sequence, int32_t tokens);
  bool take_pages_from_waiting();
  void preempt_last();
  StepShape shape() const;  // of the rows planned so far
  void describe();

  SchedulerLimits limits_;
  PrefixCache* prefixes_;
  std::span<const KvPlacement> placements_;
  StepCost cost_;
  std::vector<std::unique_ptr<Sequence>> running_;  // by rank
  WaitingQueue waiting_;
  std::vector<Sequence*> touched_;  // some of them may run
  uint64_t next_serial_ = 0;
  Plan plan_;
  int32_t tokens_left_ = 0, logits_left_ = 0;  // of the step being planned
  std::vector<Sequence*> prompts_;             // that take part in the step being planned, by rank
  PromptShares shares_;
};

}  // namespace invar
