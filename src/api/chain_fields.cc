#include "api/chain_fields.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "api/dry_breaker_cache.h"
#include "sampling/chain.h"

namespace invar::api {
namespace {

constexpr size_t kMaxLinks = 64;

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

// "samplers": names of links, or a string of their letters.
void read_order(const Fields& fields, SamplingParams* params) {
  const json::value* order = fields.find("samplers");
  if (order == nullptr) return;
  const auto take = [&](Result<std::vector<uint8_t>> chain) {
    if (!chain.ok()) return fields.fail("samplers", chain.status().message());
    params->chain = std::move(*chain);
  };
  if (order->is_string()) return take(chain_of_letters(view(order->get_string())));
  if (!order->is_array())
    return fields.fail("samplers", fmt::format("must be an array of names or a string of letters, not {}",
                                               json_type_name(*order)));
  const json::array* list = &order->get_array();
  const Path path = fields.at("samplers");
  if (list->size() > kMaxLinks)
    return fields.fail("samplers", fmt::format("has {} names; there are {}", list->size(), link_names()));
  std::vector<std::string_view> names;
  for (size_t i = 0; i < list->size(); ++i)
    if (!read_string((*list)[i], {&path, i}, fields.sink(), &names.emplace_back())) return;
  take(chain_of(names));
}

}  // namespace

void read_chain_fields(const Fields& fields, const Service& service, SamplingParams* params) {
  if (params->dynatemp_range > 0 && params->temperature == 0)
    fields.fail("dynatemp_range",
                "contradicts temperature 0, which takes the most likely token; send one of the two");
  read_dry_breakers(fields, service, params);
  read_order(fields, params);
}

}  // namespace invar::api
