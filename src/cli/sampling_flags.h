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
  // Of an answer whose model says nothing.
  static constexpr float kDefaultTemperature = 0.7f;

  // flags outlives this. for_one_answer: with --logprobs, and a seed that is shown.
  void declare(Flags& flags, bool for_one_answer = true);

  // After parsing: checks values that no single flag can, reads the lists; without --seed, a random seed.
  Status finish();
  // For what no flag said: how the model's tokens are to be chosen.
  void take_defaults(const SamplingParams& model);
  // Members of a request that flags set, and the links of --samplers.
  std::vector<std::string> given_members() const;
  const std::vector<std::string>& links() const { return links_; }
  // What can only be checked with a model: ids and counts.
  Status check_vocabulary(int32_t vocab) const;
  // Sets sampling, max_tokens and ignore_eos of a request and adds --stop-id to its stop ids.
  void apply(GenerateRequest& request) const;
  uint64_t seed() const { return params_.seed; }
  float temperature() const { return params_.temperature; }
  int32_t max_tokens() const { return max_tokens_; }
  bool seed_given() const { return seed_given_; }
  int32_t logprobs() const { return params_.logprobs; }

 private:
  const Flags* flags_ = nullptr;
  SamplingParams params_;
  std::string order_;
  std::vector<std::string> links_;
  std::vector<std::string> bias_, stop_;
  std::vector<int32_t> stop_ids_;
  int32_t max_tokens_ = 512;
  bool seed_given_ = false, ignore_eos_ = false;
};

}  // namespace invar
