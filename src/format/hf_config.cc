#include "format/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/quote.h"
#include "format/json_value.h"
#include "format/lfs_pointer.h"

namespace invar {
namespace {

std::optional<double> number_of(const JsonValue& v) {
  if (const auto* i = std::get_if<int64_t>(&v.data)) return static_cast<double>(*i);
  if (const auto* d = std::get_if<double>(&v.data)) return *d;
  return std::nullopt;
}

}  // namespace

Result<HfConfig> HfConfig::parse(std::string_view text, const std::string& label) {
  constexpr JsonLimits kLimits{.bytes = 16 << 20, .values = 1 << 20};
  if (Status s = check_no_lfs_pointer(std::as_bytes(std::span(text))); !s.ok()) return s.with_context(label);
  Result<JsonValue> root = parse_json(text, kLimits);
  if (!root.ok()) return root.status().with_context(label);
  if (!std::holds_alternative<JsonValue::Object>(root->data))
    return corrupt(fmt::format("{} is {}, not an object", label, root->type_name()));
  return HfConfig(label, std::make_unique<JsonValue>(*std::move(root)));
}

HfConfig::HfConfig(std::string label, std::unique_ptr<JsonValue> root)
    : label_(std::move(label)), root_(std::move(root)) {}
HfConfig::HfConfig(HfConfig&&) noexcept = default;
HfConfig& HfConfig::operator=(HfConfig&&) noexcept = default;
HfConfig::~HfConfig() = default;

// nullptr: absent or null, at any level. An error where something else than an object is in the way.
Result<const JsonValue*> HfConfig::find_in(const JsonValue* at, std::string_view key) const {
  for (size_t start = 0; at != nullptr && start <= key.size();) {
    if (std::holds_alternative<std::nullptr_t>(at->data)) return nullptr;
    if (!std::holds_alternative<JsonValue::Object>(at->data))
      return wrong_type(key.substr(0, start - 1), "an object", *at);
    const size_t dot = std::min(key.find('.', start), key.size());
    at = at->find(key.substr(start, dot - start));
    start = dot + 1;
  }
  return at == nullptr || std::holds_alternative<std::nullptr_t>(at->data) ? nullptr : at;
}

Result<const JsonValue*> HfConfig::find(std::string_view key) const {
  ASSIGN_OR_RETURN(const JsonValue* text, find_in(root_.get(), "text_config"));
  if (text != nullptr) {
    if (!std::holds_alternative<JsonValue::Object>(text->data))
      return wrong_type("text_config", "an object", *text);
    ASSIGN_OR_RETURN(const JsonValue* value, find_in(text, key));
    if (value != nullptr) return value;
  }
  return find_in(root_.get(), key);
}

Status HfConfig::wrong_type(std::string_view key, const char* wanted, const JsonValue& value) const {
  return corrupt(
      fmt::format("{}: {} should be {}, but is {}", label_, quote(key), wanted, value.type_name()));
}

bool HfConfig::has(std::string_view key) const {
  const auto found = find(key);
  return found.ok() && *found != nullptr;
}

Result<bool> HfConfig::has_members(std::string_view key) const {
  ASSIGN_OR_RETURN(const JsonValue* v, find(key));
  if (v == nullptr) return false;
  if (const auto* object = std::get_if<JsonValue::Object>(&v->data)) return !object->empty();
  return wrong_type(key, "an object", *v);
}

Result<std::optional<int64_t>> HfConfig::get_int(std::string_view key) const {
  ASSIGN_OR_RETURN(const JsonValue* v, find(key));
  if (v == nullptr) return std::optional<int64_t>();
  if (const auto* i = std::get_if<int64_t>(&v->data)) return std::optional(*i);
  // Some files write whole numbers as floats.
  if (const auto* d = std::get_if<double>(&v->data); d && std::fabs(*d) < 0x1p53 && std::floor(*d) == *d)
    return std::optional(static_cast<int64_t>(*d));
  return wrong_type(key, "an integer", *v);
}

Result<std::optional<double>> HfConfig::get_double(std::string_view key) const {
  ASSIGN_OR_RETURN(const JsonValue* v, find(key));
  if (v == nullptr) return std::optional<double>();
  const std::optional<double> number = number_of(*v);
  if (!number) return wrong_type(key, "a number", *v);
  return number;
}

Result<std::optional<bool>> HfConfig::get_bool(std::string_view key) const {
  ASSIGN_OR_RETURN(const JsonValue* v, find(key));
  if (v == nullptr) return std::optional<bool>();
  if (const auto* b = std::get_if<bool>(&v->data)) return std::optional(*b);
  return wrong_type(key, "true or false", *v);
}

Result<std::optional<std::string>> HfConfig::get_string(std::string_view key) const {
  ASSIGN_OR_RETURN(const JsonValue* v, find(key));
  if (v == nullptr) return std::optional<std::string>();
  if (const auto* s = std::get_if<std::string>(&v->data)) return std::optional(*s);
  return wrong_type(key, "a string", *v);
}

Result<std::optional<std::vector<int64_t>>> HfConfig::get_ints(std::string_view key) const {
  ASSIGN_OR_RETURN(const JsonValue* v, find(key));
  if (v == nullptr) return std::optional<std::vector<int64_t>>();
  const auto* array = std::get_if<JsonValue::Array>(&v->data);
  if (array == nullptr) return wrong_type(key, "an array of integers", *v);
  std::vector<int64_t> out;
  for (const JsonValue& item : *array) {
    if (const auto* i = std::get_if<int64_t>(&item.data)) {
      out.push_back(*i);
    } else if (const auto* b = std::get_if<bool>(&item.data)) {
      out.push_back(*b);
    } else {
      return wrong_type(key, "an array of integers", item);
    }
  }
  return std::optional(std::move(out));
}

Result<std::optional<std::vector<double>>> HfConfig::get_doubles(std::string_view key) const {
  ASSIGN_OR_RETURN(const JsonValue* v, find(key));
  if (v == nullptr) return std::optional<std::vector<double>>();
  const auto* array = std::get_if<JsonValue::Array>(&v->data);
  if (array == nullptr) return wrong_type(key, "an array of numbers", *v);
  std::vector<double> out;
  for (const JsonValue& item : *array) {
    const std::optional<double> number = number_of(item);
    if (!number) return wrong_type(key, "an array of numbers", item);
    out.push_back(*number);
  }
  return std::optional(std::move(out));
}

Result<std::optional<std::vector<std::string>>> HfConfig::get_strings(std::string_view key) const {
  ASSIGN_OR_RETURN(const JsonValue* v, find(key));
  if (v == nullptr) return std::optional<std::vector<std::string>>();
  const auto* array = std::get_if<JsonValue::Array>(&v->data);
  if (array == nullptr) return wrong_type(key, "an array of strings", *v);
  std::vector<std::string> out;
  for (const JsonValue& item : *array) {
    const auto* s = std::get_if<std::string>(&item.data);
    if (s == nullptr) return wrong_type(key, "an array of strings", item);
    out.push_back(*s);
  }
  return std::optional(std::move(out));
}

}  // namespace invar
