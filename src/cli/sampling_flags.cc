#include "cli/sampling_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string_view>

#include "sampling/chain.h"

namespace invar {
namespace {

constexpr double kMax = std::numeric_limits<float>::max();

struct NumberFlag {
  const char* names;
  const char* member;  // of requests
  float SamplingParams::* value;
  const char* help;
  double least, most;
};
constexpr NumberFlag kNumbers[] = {
    {"--temp,--temperature", "temperature", &SamplingParams::temperature,
     "0 always takes the most likely token (default: the model's, else 0.7; of a server's answers 1)", 0,
     kMax},
    {"--top-p", "top_p", &SamplingParams::top_p,
     "keep the most likely tokens that sum to X; 1 = all (default)", 0, 1},
    {"--min-p", "min_p", &SamplingParams::min_p,
     "drop tokens below X times the most likely one; 0 = off (default)", 0, 1},
    {"--typical", "typical_p", &SamplingParams::typical_p,
     "keep the tokens of most typical information that sum to X; 1 = all (default)", 0, 1},
    {"--top-nsigma", "top_n_sigma", &SamplingParams::top_n_sigma,
     "keep tokens within X standard deviations of the highest logit; 0 = off (default)", 0, 100},
    {"--xtc-probability", "xtc_probability", &SamplingParams::xtc_probability,
     "how often the top choices but the least likely are dropped; 0 = off (default)", 0, 1},
    {"--xtc-threshold", "xtc_threshold", &SamplingParams::xtc_threshold,
     "from which probability on a token is a top choice (default: 0.1)", 0, 1},
    {"--dynatemp-range", "dynatemp_range", &SamplingParams::dynatemp_range,
     "how far the temperature moves with the entropy; 0 = off (default)", 0, 2},
    {"--dynatemp-exp", "dynatemp_exponent", &SamplingParams::dynatemp_exponent,
     "exponent of the entropy there (default: 1)", 0, 10},
    {"--presence-penalty", "presence_penalty", &SamplingParams::presence_penalty,
     "subtracted once for a generated token", -kMax, kMax},
    {"--frequency-penalty", "frequency_penalty", &SamplingParams::frequency_penalty,
     "subtracted per use of a generated token", -kMax, kMax},
    {"--repeat-penalty", "repetition_penalty", &SamplingParams::repetition_penalty,
     "divides tokens of prompt and answer; 1 = off", 0, kMax},
    {"--dry-multiplier", "dry_multiplier", &SamplingParams::dry_multiplier,
     "holds repetitions back (DRY); 0 = off (default)", 0, 100},
    {"--dry-base", "dry_base", &SamplingParams::dry_base,
     "growth of that with the length of the repetition (default: 1.75)", 1, 100},
    {"--mirostat-ent", "mirostat_tau", &SamplingParams::mirostat_tau,
     "surprise in bits that mirostat aims at (default: 5)", 0, 100},
    {"--mirostat-lr", "mirostat_eta", &SamplingParams::mirostat_eta, "its learning rate (default: 0.1)", 0,
     1},
};

struct IntegerFlag {
  const char* names;
  const char* member;
  int32_t SamplingParams::* value;
  const char* help;
  int64_t least, most;
};
constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
constexpr IntegerFlag kIntegers[] = {
    {"--top-k", "top_k", &SamplingParams::top_k, "keep the N most likely tokens; 0 = all (default)", 0,
     kMaxInt},
    {"--repeat-last-n", "repeat_last_n", &SamplingParams::penalty_last_n,
     "tokens that the penalties count; -1 = all (default), 0 = none", -1, kMaxInt},
    {"--dry-allowed-length", "dry_allowed_length", &SamplingParams::dry_allowed_length,
     "repetitions shorter than that are free (default: 2)", 0, kMaxInt},
    {"--dry-penalty-last-n", "dry_penalty_last_n", &SamplingParams::dry_penalty_last_n,
     "tokens that DRY looks at; -1 = all (default), 0 = none", -1, kMaxInt},
    {"--mirostat", "mirostat", &SamplingParams::mirostat,
     "1 or 2: this version of mirostat in place of all filters; 0 = off (default)", 0, 2},
    {"--min-tokens", "min_tokens", &SamplingParams::min_tokens,
     "tokens before the answer may end by a token (default: 0)", 0, kMaxInt},
};

// The name that Flags::given knows.
std::string_view long_name_of(std::string_view names) {
  return names.substr(0, names.find(','));
}

}  // namespace

void SamplingFlags::declare(Flags& flags, bool for_one_answer) {
  flags_ = &flags;
  params_.temperature = kDefaultTemperature;
  flags.section("Choice of tokens");
  for (const NumberFlag& f : kNumbers)
    flags.number(f.names, &(params_.*f.value), f.help, f.least, f.most);
  for (const IntegerFlag& f : kIntegers)
    flags.integer(f.names, &(params_.*f.value), f.help, f.least, f.most);
  flags.text("--samplers", &order_, "A;B", "which links of the chain run, in this order: " + link_names());
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
  if (params_.typical_p <= 0) return invalid_argument("--typical 0: must be above 0; 1 keeps all tokens");
  if (params_.dynatemp_range > 0 && params_.temperature == 0)
    return invalid_argument("--dynatemp-range: contradicts --temp 0, which takes the most likely token");
  if (params_.min_tokens > max_tokens_)
    return invalid_argument(
        fmt::format("--min-tokens {}: more than --max-tokens {}", params_.min_tokens, max_tokens_));
  if (!order_.empty()) {
    for (size_t at = 0; at <= order_.size();) {
      const size_t end = std::min(order_.find(';', at), order_.size());
      links_.push_back(order_.substr(at, end - at));
      at = end + 1;
    }
    auto chain = chain_of(std::vector<std::string_view>(links_.begin(), links_.end()));
    if (!chain.ok()) return chain.status().with_context("--samplers");
    params_.chain = std::move(*chain);
  }
  if (params_.repetition_penalty <= 0)
    return invalid_argument("--repeat-penalty 0: must be above 0; 1 turns it off");
  if (!seed_given_) {
    std::random_device device;
    params_.seed = uint64_t{device()} << 32 | device();
  }
  constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max();
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

void SamplingFlags::take_defaults(const SamplingParams& model) {
  for (const NumberFlag& f : kNumbers)
    if (!flags_->given(std::string(long_name_of(f.names)))) params_.*f.value = model.*f.value;
  for (const IntegerFlag& f : kIntegers)
    if (!flags_->given(std::string(long_name_of(f.names)))) params_.*f.value = model.*f.value;
  if (order_.empty()) params_.chain = model.chain;
}

std::vector<std::string> SamplingFlags::given_members() const {
  std::vector<std::string> members;
  for (const NumberFlag& f : kNumbers)
    if (flags_->given(std::string(long_name_of(f.names)))) members.push_back(f.member);
  for (const IntegerFlag& f : kIntegers)
    if (flags_->given(std::string(long_name_of(f.names)))) members.push_back(f.member);
  return members;
}

void SamplingFlags::apply(GenerateRequest& request) const {
  request.sampling = params_;
  request.max_tokens = max_tokens_;
  request.ignore_eos = ignore_eos_;
  request.stop_ids.insert(request.stop_ids.end(), stop_ids_.begin(), stop_ids_.end());
}

}  // namespace invar
