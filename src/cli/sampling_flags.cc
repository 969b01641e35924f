#include "cli/sampling_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string_view>
#include <variant>

#include "sampling/chain.h"
#include "sampling/numbers.h"

namespace invar {
namespace {

// The name that Flags::given knows.
bool given(const Flags& flags, const SamplingNumber& number) {
  const std::string names = number.flags;
  return flags.given(names.substr(0, names.find(',')));
}

}  // namespace

void SamplingFlags::declare(Flags& flags, bool for_one_answer) {
  flags_ = &flags;
  params_.temperature = kDefaultTemperature;
  flags.section("Choice of tokens");
  for (const SamplingNumber& n : sampling_numbers()) {
    if (const auto* integer = std::get_if<int32_t SamplingParams::*>(&n.member)) {
      flags.integer(n.flags, &(params_.**integer), n.help, int64_t(n.min), int64_t(n.max));
    } else {
      flags.number(n.flags, &(params_.*std::get<float SamplingParams::*>(n.member)), n.help, n.min, n.max);
    }
  }
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
  if (params_.temperature < kMinTemperature) params_.temperature = 0;
  if (params_.dynatemp_range > 0 && params_.temperature == 0)
    return invalid_argument("--dynatemp-range: contradicts --temp 0, which takes the most likely token");
  if (params_.min_tokens > max_tokens_)
    return invalid_argument(
        fmt::format("--min-tokens {}: more than --max-tokens {}", params_.min_tokens, max_tokens_));
  if (!order_.empty()) {
    const std::vector<std::string_view> links = split_links(order_);
    auto chain = chain_of(links);
    if (!chain.ok()) return chain.status().with_context("--samplers");
    params_.chain = std::move(*chain);
    links_.assign(links.begin(), links.end());
  }
  if (!seed_given_) {
    std::random_device device;
    params_.seed = uint64_t{device()} << 32 | device();
  }
  constexpr double kMax = std::numeric_limits<float>::max();
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
  for (const SamplingNumber& n : sampling_numbers())
    if (!given(*flags_, n)) n.set(n.get(model), &params_);
  if (order_.empty()) params_.chain = model.chain;
}

std::vector<std::string> SamplingFlags::given_members() const {
  std::vector<std::string> members;
  for (const SamplingNumber& n : sampling_numbers())
    if (given(*flags_, n)) members.push_back(n.name);
  return members;
}

void SamplingFlags::apply(GenerateRequest& request) const {
  request.sampling = params_;
  request.max_tokens = max_tokens_;
  request.ignore_eos = ignore_eos_;
  request.stop_ids.insert(request.stop_ids.end(), stop_ids_.begin(), stop_ids_.end());
}

}  // namespace invar
