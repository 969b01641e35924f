#pragma once
// Service: what the protocols know of the model that is served. Filled once by the command line, immutable
// while the server runs, read by every thread.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/dry_breaker_cache.h"
#include "base/status.h"
#include "engine/request.h"
#include "engine/stream.h"
#include "sampling/params.h"
#include "text/text_model.h"

namespace invar::api {

class PrefixLog;
class Script;

struct Service {
  std::vector<std::string> model_names;  // the first one is what replies say
  bool accept_any_model = false;         // any "model" means this one
  int64_t created = 0;                   // unix seconds, of /v1/models

  std::shared_ptr<const text::TextModel> text;
  int32_t context = 0;  // positions of prompt and answer together
  int32_t vocab = 0;    // rows of the output layer

  // Of receipts. fingerprint: digest of the three before it, of the model's sampling defaults and of what
  // flags changed in its positions.
  std::string model_digest, numerics, kv, fingerprint;

  SamplingParams sampling_defaults;  // of fields that a request leaves out; the model's own where it has some

  std::shared_ptr<DryBreakerCache> breakers = std::make_shared<DryBreakerCache>();

  int32_t max_choices = 16;         // `n` and `best_of`
  int32_t max_prompts = 64;         // of one completions request
  int64_t max_answers = INT64_MAX;  // choices of all prompts of a request: what may run and wait at once
  size_t max_text_bytes = 1 << 20;  // text_limits.h
  size_t max_token_ids = 1 << 18;   // of /tokenize and /detokenize, whatever the context is

  // Engine::submit: `choices` streams over one prompt.
  std::function<Result<std::vector<std::shared_ptr<Stream>>>(GenerateRequest request, int32_t choices)>
      submit;

  // Engine::predicted_wait_s: of a request that comes now, by what runs and waits.
  std::function<double()> predicted_wait_s = [] { return 0.0; };

  // What was found while serving and forbids answers: the message of every 503.
  std::function<Status()> fault = [] { return Status(); };

  std::shared_ptr<PrefixLog> prefix_log;  // of /debug/prefix

  const Script* script = nullptr;  // borrowed; answers come from it (--scripted)
};

}  // namespace invar::api
