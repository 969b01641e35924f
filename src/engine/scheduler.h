#pragma once
// Scheduler: which sequences take how many tokens in the next step. Engine thread only; knows nothing of
// tensors. Decode rows first, then prompts share what is left of the budget. When pages run out the youngest
// running sequence gives its pages back and is computed again later; the oldest one can always go on, so
// every sequence ends.

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "engine/batch.h"
#include "engine/sequence.h"
#include "kv/page_pool.h"

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
};

class Scheduler {
 public:
  Scheduler(const SchedulerLimits& limits, const PagePool* pool, std::span<const KvPlacement> placements);

  void add(std::unique_ptr<Sequence> sequence) { waiting_.push_back(std::move(sequence)); }
  const Plan& plan();
  // Destroys the finished ones.
  void retire();

  // Both in order of arrival; everything running is older than everything waiting.
  std::span<const std::unique_ptr<Sequence>> running() const { return running_; }
  const std::deque<std::unique_ptr<Sequence>>& waiting() const { return waiting_; }

 private:
  void admit();
  bool fits_now(const Sequence& sequence) const;
  int32_t fair_share() const;
  void give(Sequence& sequence, int32_t tokens);
  bool reserve(Sequence& sequence, int32_t tokens);
  void preempt_youngest();

  SchedulerLimits limits_;
  const PagePool* pool_;
  std::span<const KvPlacement> placements_;
  std::vector<std::unique_ptr<Sequence>> running_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  Plan plan_;
  int32_t tokens_left_ = 0, logits_left_ = 0;  // of the step being planned
  mutable std::vector<int32_t> wants_;
};

}  // namespace invar
