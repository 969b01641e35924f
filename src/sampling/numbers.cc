#include "sampling/numbers.h"

#include <fmt/format.h>

#include <limits>
#include <type_traits>

namespace invar {
namespace {

using P = SamplingParams;
constexpr double kMaxInt = std::numeric_limits<int32_t>::max();

constexpr SamplingNumber kNumbers[] = {
    {"temperature", nullptr, "--temp,--temperature", "temp", "temperature", 0, 2, &P::temperature,
     "0 always takes the most likely token (default: the model's, else 0.7; of a server's answers 1)"},
    {"top_p", nullptr, "--top-p", "top_p", "top_p", 0, 1, &P::top_p,
     "keep the most likely tokens that sum to X; 1 = all (default)"},
    {"top_k", nullptr, "--top-k", "top_k", "top_k", -1, kMaxInt, &P::top_k,
     "keep the N most likely tokens; 0 or -1 = all (default)"},
    {"min_p", nullptr, "--min-p", "min_p", "min_p", 0, 1, &P::min_p,
     "drop tokens below X times the most likely one; 0 = off (default)"},
    {"typical_p", nullptr, "--typical", nullptr, "typical_p", 0, 1, &P::typical_p,
     "keep the tokens of most typical information that sum to X; 1 = all (default)"},
    {"top_n_sigma", nullptr, "--top-nsigma", nullptr, nullptr, -1, 100, &P::top_n_sigma,
     "keep tokens within X standard deviations of the highest logit; up to 0 = off (default)"},
    {"xtc_probability", nullptr, "--xtc-probability", "xtc_probability", nullptr, 0, 1, &P::xtc_probability,
     "how often the top choices but the least likely are dropped; 0 = off (default)"},
    {"xtc_threshold", nullptr, "--xtc-threshold", "xtc_threshold", nullptr, 0, 1, &P::xtc_threshold,
     "from which probability on a token is a top choice (default: 0.1)"},
    {"dynatemp_range", nullptr, "--dynatemp-range", nullptr, nullptr, 0, 2, &P::dynatemp_range,
     "how far the temperature moves with the entropy; 0 = off (default)"},
    {"dynatemp_exponent", nullptr, "--dynatemp-exp", nullptr, nullptr, 0, 10, &P::dynatemp_exponent,
     "exponent of the entropy there (default: 1)"},
    {"presence_penalty", nullptr, "--presence-penalty", nullptr, nullptr, -2, 2, &P::presence_penalty,
     "subtracted once for a generated token"},
    {"frequency_penalty", nullptr, "--frequency-penalty", nullptr, nullptr, -2, 2, &P::frequency_penalty,
     "subtracted per use of a generated token"},
    {"repetition_penalty", "repeat_penalty", "--repeat-penalty", "penalty_repeat", "repetition_penalty", 0.01,
     10, &P::repetition_penalty, "divides tokens of prompt and answer; 1 = off (default)"},
    {"repeat_last_n", nullptr, "--repeat-last-n", "penalty_last_n", nullptr, -1, kMaxInt, &P::penalty_last_n,
     "tokens that the penalties count; -1 = all (default), 0 = none"},
    {"dry_multiplier", nullptr, "--dry-multiplier", nullptr, nullptr, 0, 100, &P::dry_multiplier,
     "holds repetitions back (DRY); 0 = off (default)"},
    {"dry_base", nullptr, "--dry-base", nullptr, nullptr, 1, 100, &P::dry_base,
     "growth of that with the length of the repetition (default: 1.75)"},
    {"dry_allowed_length", nullptr, "--dry-allowed-length", nullptr, nullptr, 0, kMaxInt,
     &P::dry_allowed_length, "repetitions shorter than that are free (default: 2)"},
    {"dry_penalty_last_n", nullptr, "--dry-penalty-last-n", nullptr, nullptr, -1, kMaxInt,
     &P::dry_penalty_last_n, "tokens that DRY looks at; -1 = all (default), 0 = none"},
    {"mirostat", nullptr, "--mirostat", "mirostat", nullptr, 0, 2, &P::mirostat,
     "1 or 2: this version of mirostat in place of all filters; 0 = off (default)"},
    {"mirostat_tau", nullptr, "--mirostat-ent", "mirostat_tau", nullptr, 0, 100, &P::mirostat_tau,
     "surprise in bits that mirostat aims at (default: 5)"},
    {"mirostat_eta", nullptr, "--mirostat-lr", "mirostat_eta", nullptr, 0, 1, &P::mirostat_eta,
     "its learning rate (default: 0.1)"},
    {"min_tokens", nullptr, "--min-tokens", nullptr, nullptr, 0, kMaxInt, &P::min_tokens,
     "tokens before the answer may end by a token (default: 0)"},
};

}  // namespace

// A bound given as fp32 is within.
bool SamplingNumber::within(double x) const {
  return whole() ? x >= min && x <= max : x >= double(float(min)) && x <= double(float(max));
}

double SamplingNumber::get(const SamplingParams& params) const {
  return std::visit([&](auto m) { return double(params.*m); }, member);
}

void SamplingNumber::set(double x, SamplingParams* params) const {
  std::visit([&](auto m) { params->*m = std::decay_t<decltype(params->*m)>(x); }, member);
  // Clients write what is too small to divide by where they are not allowed to write 0.
  if (params->temperature < kMinTemperature) params->temperature = 0;
}

std::string SamplingNumber::text(const SamplingParams& params) const {
  return std::visit([&](auto m) { return fmt::format("{}", params.*m); }, member);
}

std::span<const SamplingNumber> sampling_numbers() {
  return kNumbers;
}

}  // namespace invar
