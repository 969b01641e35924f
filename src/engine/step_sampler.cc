#include "engine/step_sampler.h"

#include <utility>

#include "engine/contained.h"

namespace invar {

StepSampler::StepSampler(Backend* backend, int32_t vocab)
    : backend_(*backend), mask_words_((size_t(vocab) + 31) / 32) {
  for (int i = 0; i < backend_.threads(); ++i)
    samplers_.emplace_back(backend_.row_kernels());
}

void StepSampler::add(Sequence& sequence, std::span<const float> logits) {
  if (!sequence.chooses()) return;
  Row row{&sequence, logits, {}, Choice()};
  const Status masked = contained("the request's guard", [&] { row.mask = sequence.mask(mask_words_); });
  if (!masked.ok()) row.choice = masked;
  rows_.push_back(std::move(row));
}

void StepSampler::choose(FunctionRef<void(Sequence& sequence, Result<Choice> choice)> take) {
  backend_.run_tasks(int64_t(rows_.size()), [this](int64_t row, int thread) {
    choose_row(rows_[size_t(row)], samplers_[size_t(thread)]);
  });
  for (Row& row : rows_)
    take(*row.sequence, std::move(row.choice));
  rows_.clear();
}

void StepSampler::choose_row(Row& row, Sampler& sampler) {
  if (!row.choice.ok()) return;
  const Status chosen = contained("the request's sampling", [&] {
    row.choice = sampler.choose(row.sequence->sample_input(row.logits, row.mask));
  });
  if (!chosen.ok()) row.choice = chosen;
}

}  // namespace invar
