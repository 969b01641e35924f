#include "models/rope_override.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>

#include "base/quote.h"
#include "models/dense_keys.h"

namespace invar {
namespace {

constexpr const char* kRules[] = {"none", "linear", "yarn"};  // as RopeRule begins
constexpr RopeRule kRuleOf[] = {RopeRule::kPlain, RopeRule::kLinear, RopeRule::kYarn};

const char* name_of(RopeRule rule) {
  return kRules[std::find(std::begin(kRuleOf), std::end(kRuleOf), rule) - std::begin(kRuleOf)];
}

// The positions that the model knew before its file stretched them.
double unscaled_context(const ModelConfig& config) {
  const RopeScaling& s = config.rope_recipe->scaling;
  if (s.rule == RopeRule::kYarn) return s.original_context;
  if (s.rule == RopeRule::kLinear) return double(config.context_length) / s.factor;
  return config.context_length;
}

Status rescale(const RopeOverride& wanted, ModelConfig* config) {
  RopeRecipe& recipe = *config->rope_recipe;
  const double before = unscaled_context(*config);
  RopeScaling scaling{.rule = *wanted.rule};
  if (scaling.rule != RopeRule::kPlain) {
    if (wanted.factor == 0 && wanted.context == 0)
      return invalid_argument(
          fmt::format("--rope-scaling {0}: by how much? Give {0}:FACTOR, or --ctx N", name_of(scaling.rule)));
    scaling.factor = wanted.factor != 0 ? wanted.factor : std::max(1.0, double(wanted.context) / before);
    scaling.original_context = before;
  }
  recipe.scaling = scaling;
  recipe.divisors.clear();
  config->context_length = int32_t(std::clamp(before * scaling.factor, 1.0, double(kMaxContext)));
  return {};
}

}  // namespace

std::string RopeOverride::text() const {
  std::string text;
  if (base != 0) text += fmt::format("rope-base {}", base);
  if (!rule.has_value()) return text;
  text += fmt::format("{}rope-scaling {}", text.empty() ? "" : ", ", name_of(*rule));
  if (*rule == RopeRule::kPlain) return text;
  return text + (factor != 0 ? fmt::format(":{}", factor) : fmt::format(" for {}", context));
}

Status parse_rope_rule(std::string_view text, RopeOverride* out) {
  const size_t colon = text.find(':');
  const auto* name = std::find(std::begin(kRules), std::end(kRules), text.substr(0, colon));
  const auto wrong = [&](const char* what) {
    return invalid_argument(fmt::format(
        "--rope-scaling {}: {}; give none, linear, linear:FACTOR, yarn or yarn:FACTOR", quote(text), what));
  };
  if (name == std::end(kRules)) return wrong("unknown");
  out->rule = kRuleOf[name - std::begin(kRules)];
  if (colon == std::string_view::npos) return {};
  if (out->rule == RopeRule::kPlain) return wrong("none has no factor");
  const std::string_view number = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), out->factor);
  if (error != std::errc() || end != number.data() + number.size() ||
      !(out->factor >= 1 && out->factor <= 1024))
    return wrong("the factor is no number between 1 and 1024");
  return {};
}

Status apply(const RopeOverride& wanted, ModelConfig* config) {
  if (wanted.empty()) return {};
  if (!config->rope_recipe.has_value() || config->rope_recipe->scaling.rule == RopeRule::kLongrope)
    return unsupported(
        "--rope-base and --rope-scaling: this model rotates in a way of its own (longrope, or ropes that "
        "differ between layers); leave them out");
  RopeRecipe& recipe = *config->rope_recipe;
  if (wanted.base != 0) recipe.theta = wanted.base;
  if (wanted.rule.has_value()) RETURN_IF_ERROR(rescale(wanted, config));
  auto rope = make_rope(recipe);
  if (!rope.ok()) return rope.status().with_context("--rope-base and --rope-scaling");
  rope->adjacent = config->rope.adjacent;
  config->rope = std::move(*rope);
  return {};
}

}  // namespace invar
