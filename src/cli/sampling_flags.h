#pragma once
// SamplingFlags: how tokens are chosen and when an answer ends, from the command line. Main thread.

#include <cstdint>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "engine/request.h"

namespace invar {

class SamplingFlags {
 public:
  void declare(Flags& flags);

  // Sets sampling, max_tokens and ignore_eos of a request and adds --stop-id to its stop ids. Without --seed
  // the seed is random, chosen once.
  Status apply(GenerateRequest& request);
  uint64_t seed() const { return params_.seed; }
  int32_t logprobs() const { return params_.logprobs; }

 private:
  SamplingParams params_;
  std::vector<std::string> bias_, stop_;
  int32_t max_tokens_ = 512;
  bool seed_given_ = false, ignore_eos_ = false;
};

}  // namespace invar
