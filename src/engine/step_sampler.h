#pragma once
// StepSampler: the choices of one step, made side by side on the backend's threads. A choice is a function of
// its own row (sampling/sampler.h), so neither the threads nor the other rows can change it. Owned by the
// StepLoop; called on the engine thread, which alone asks guards and changes sequences.

#include <cstdint>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "base/function_ref.h"
#include "base/status.h"
#include "engine/sequence.h"
#include "sampling/sampler.h"

namespace invar {

class StepSampler {
 public:
  StepSampler(Backend* backend, int32_t vocab);  // borrowed

  // A sequence that may be about to choose; its guard is asked for a mask here. Both are borrowed until
  // choose() returns. logits: [vocab].
  void add(Sequence& sequence, std::span<const float> logits);
  // Hands over what each chooses, in the order of add(), and forgets them all.
  void choose(FunctionRef<void(Sequence& sequence, Result<Choice> choice)> take);

 private:
  struct Row {
    Sequence* sequence;
    std::span<const float> logits;
    std::vector<uint32_t> mask;  // a bit per token id; empty = all are allowed
    Result<Choice> choice;
  };
  void choose_row(Row& row, Sampler& sampler);

  Backend& backend_;
  const size_t mask_words_;
  std::vector<Sampler> samplers_;  // one per thread
  std::vector<Row> rows_;
};

}  // namespace invar
