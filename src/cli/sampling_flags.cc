#include "cli/sampling_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <random>

namespace invar {
namespace {

constexpr float kDefaultTemperature = 0.7f;

}  // namespace

void SamplingFlags::declare(Flags& flags, bool for_one_answer) {
  params_.temperature = kDefaultTemperature;
  constexpr double kMax = std::numeric_limits<float>::max();
  flags.section("Choice of tokens");
  flags.number("--temp,--temperature", &params_.temperature,
               "0 always takes the most likely token (default: 0.7; of requests to a server: 1)", 0, kMax);
  flags.integer("--top-k", &params_.top_k, "keep the N most likely tokens; 0 = all (default)");
  flags.number("--top-p", &params_.top_p, "keep the most likely tokens that sum to X; 1 = all (default)", 0,
               1);
  flags.number("--min-p", &params_.min_p, "drop tokens below X times the most likely one; 0 = off (default)",
               0, 1);
  flags.number("--presence-penalty", &params_.presence_penalty, "subtracted once for a generated token",
               -kMax, kMax);
  flags.number("--frequency-penalty", &params_.frequency_penalty, "subtracted per use of a generated token",
               -kMax, kMax);
  flags.number("--repeat-penalty", &params_.repetition_penalty,
               "divides tokens of prompt and answer; 1 = off", 0, kMax);
  flags.texts("--logit-bias", &bias_, "ID:X", "adds X to the logit of a token; may be repeated");
  flags.unsigned64("--seed", &params_.seed, &seed_given_,
                   for_one_answer ? "makes sampling repeatable (default: random, shown by -v)"
                                  : "makes sampling repeatable (default: random)");
  if (for_one_answer)
    flags.integer("--logprobs", &params_.logprobs,
                  "print each token with its log probability and N alternatives", 0, 1000);
  flags.section("End of the answer");
  flags.integer("-n,--max-tokens", &max_tokens_, "tokens generated at most (default: 512)", 1);
  flags.on("--ignore-eos", &ignore_eos_, "go on at end-of-text tokens");
  flags.texts("--stop-id", &stop_, "ID", "another token that ends the answer; may be repeated");
}

Status SamplingFlags::finish() {
  if (params_.temperature > 0 && params_.temperature < kMinTemperature)
    return invalid_argument(fmt::format("--temp {}: must be 0 (the most likely token) or at least {}",
                                        params_.temperature, kMinTemperature));
  if (params_.top_p <= 0)
    return invalid_argument(
        "--top-p 0: must be above 0; 1 keeps all tokens, --temp 0 takes the most likely one");
  if (params_.repetition_penalty <= 0)
    return invalid_argument("--repeat-penalty 0: must be above 0; 1 turns it off");
  if (!seed_given_) {
    std::random_device device;
    params_.seed = uint64_t{device()} << 32 | device();
  }
  constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max();
  constexpr double kMax = std::numeric_limits<float>::max();
  for (const std::string& b : bias_) {
    const size_t colon = b.find(':');
    const auto id = parse_integer("", b.substr(0, std::min(colon, b.size())), 0, kMaxId);
    const auto x = parse_number("", colon == std::string::npos ? "" : b.substr(colon + 1), -kMax, kMax);
    if (!id.ok() || !x.ok())
      return invalid_argument(fmt::format(
          "--logit-bias {}: must be ID:X, a token id and a number, such as 198:-2.5", shown_value(b)));
    params_.logit_bias.emplace_back(int32_t(*id), float(*x));
  }
  for (const std::string& s : stop_) {
    ASSIGN_OR_RETURN(const int64_t id, parse_integer("--stop-id", s, 0, kMaxId));
    stop_ids_.push_back(int32_t(id));
  }
  return {};
}

Status SamplingFlags::check_vocabulary(int32_t vocab) const {
  const auto outside = [vocab](const char* flag, int32_t id) {
    return invalid_argument(fmt::format("{} {}: the model has the token ids 0 to {}", flag, id, vocab - 1));
  };
  for (const auto& [id, bias] : params_.logit_bias) {
    if (id >= vocab) return outside("--logit-bias", id);
  }
  for (const int32_t id : stop_ids_) {
    if (id >= vocab) return outside("--stop-id", id);
  }
  if (params_.logprobs > vocab)
    return invalid_argument(fmt::format("--logprobs {}: the model has {} tokens", params_.logprobs, vocab));
  return {};
}

void SamplingFlags::apply(GenerateRequest& request) const {
  request.sampling = params_;
  request.max_tokens = max_tokens_;
  request.ignore_eos = ignore_eos_;
  request.stop_ids.insert(request.stop_ids.end(), stop_ids_.begin(), stop_ids_.end());
}

}  // namespace invar
