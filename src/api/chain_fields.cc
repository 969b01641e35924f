#include "api/chain_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "api/dry_breaker_cache.h"
#include "sampling/chain.h"

namespace invar::api {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr size_t kMaxLinks = 64;

struct NumberField {
  const char* key;
  double min, max;
  float SamplingParams::* value;
};
constexpr NumberField kNumbers[] = {
    {"xtc_probability", 0, 1, &SamplingParams::xtc_probability},
    {"xtc_threshold", 0, 1, &SamplingParams::xtc_threshold},
    {"dynatemp_range", 0, 2, &SamplingParams::dynatemp_range},
    {"dynatemp_exponent", 0, 10, &SamplingParams::dynatemp_exponent},
    {"dry_multiplier", 0, 100, &SamplingParams::dry_multiplier},
    {"dry_base", 1, 100, &SamplingParams::dry_base},
    {"mirostat_tau", 0, 100, &SamplingParams::mirostat_tau},
    {"mirostat_eta", 0, 1, &SamplingParams::mirostat_eta},
};

struct IntegerField {
  const char* key;
  int64_t min, max;
  int32_t SamplingParams::* value;
};
constexpr IntegerField kIntegers[] = {
    {"mirostat", 0, 2, &SamplingParams::mirostat},
    {"repeat_last_n", -1, kMaxInt32, &SamplingParams::penalty_last_n},
    {"dry_allowed_length", 0, kMaxInt32, &SamplingParams::dry_allowed_length},
    {"dry_penalty_last_n", -1, kMaxInt32, &SamplingParams::dry_penalty_last_n},
    {"min_tokens", 0, kMaxInt32, &SamplingParams::min_tokens},
};

void read_breakers(const Fields& fields, std::vector<std::string>* out) {
  const json::array* list = fields.array("dry_sequence_breakers");
  if (list == nullptr) return;
  const Path path = fields.at("dry_sequence_breakers");
  if (list->size() > kMaxBreakers)
    return fields.fail("dry_sequence_breakers",
                       fmt::format("has {} strings; at most {} are allowed", list->size(), kMaxBreakers));
  out->clear();
  for (size_t i = 0; i < list->size(); ++i) {
    std::string_view text;
    const Path item(&path, i);
    if (!read_string((*list)[i], item, fields.sink(), &text)) return;
    if (text.empty()) return fields.sink().fail(item, "is empty");
    if (text.size() > kMaxBreakerBytes)
      return fields.sink().fail(
          item, fmt::format("has {} bytes; at most {} are allowed", text.size(), kMaxBreakerBytes));
    out->emplace_back(text);
  }
}

void read_dry_breakers(const Fields& fields, const Service& service, SamplingParams* params) {
  std::vector<std::string> breakers = default_breakers();
  read_breakers(fields, &breakers);
  if (params->dry_multiplier > 0 && !breakers.empty() && !fields.sink().failed())
    params->dry_breakers = service.breakers->get(*service.text->tokenizer, breakers);
}

void read_order(const Fields& fields, SamplingParams* params) {
  const json::array* list = fields.array("samplers");
  if (list == nullptr) return;
  const Path path = fields.at("samplers");
  if (list->size() > kMaxLinks)
    return fields.fail("samplers", fmt::format("has {} names; there are {}", list->size(), link_names()));
  std::vector<std::string_view> names;
  for (size_t i = 0; i < list->size(); ++i)
    if (!read_string((*list)[i], {&path, i}, fields.sink(), &names.emplace_back())) return;
  auto chain = chain_of(names);
  if (!chain.ok()) return fields.fail("samplers", chain.status().message());
  params->chain = std::move(*chain);
}

}  // namespace

void read_chain_fields(const Fields& fields, const Service& service, SamplingParams* params) {
  double x = 0;
  for (const NumberField& f : kNumbers)
    if (fields.number(f.key, f.min, f.max, &x)) params->*f.value = float(x);
  int64_t n = 0;
  for (const IntegerField& f : kIntegers)
    if (fields.integer(f.key, f.min, f.max, &n)) params->*f.value = int32_t(n);
  // 0 keeps the token nearest to the entropy, as any number below its probability does.
  if (fields.number("typical_p", 0, 1, &x))
    params->typical_p = std::max(float(x), std::numeric_limits<float>::min());
  if (fields.number("top_n_sigma", -1, 100, &x)) params->top_n_sigma = std::max(float(x), 0.0f);
  if (params->dynatemp_range > 0 && params->temperature == 0)
    fields.fail("dynatemp_range",
                "contradicts temperature 0, which takes the most likely token; send one of the two");
  read_dry_breakers(fields, service, params);
  read_order(fields, params);
}

}  // namespace invar::api
