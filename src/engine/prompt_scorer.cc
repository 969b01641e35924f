#include "engine/prompt_scorer.h"

#include "base/fp_environment.h"

namespace invar {

Result<TokenEvent> PromptScorer::score(std::span<const float> logits, int32_t token, int32_t alternatives) {
  const FpEnvironment contract;
  if (!rows_.all_finite(logits.data(), int64_t(logits.size())))
    return internal_error("the model gave a logit that is NaN or infinite");
  logprobs_.compute(logits, rows_);
  TokenEvent event{.token = token, .logprob = logprobs_.of(token), .of_prompt = true};
  logprobs_.top(alternatives, &event.alternatives);
  return event;
}

}  // namespace invar
