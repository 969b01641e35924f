#include "api/script_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "api/json_text.h"
#include "api/sampling_fields.h"
#include "base/quote.h"

namespace invar::api {
namespace {

constexpr int64_t kMaxCostMs = 600'000;
constexpr int64_t kMaxGroups = 1'000'000;

// A script is written by hand: a key that nobody reads is a typing error.
void refuse_unknown(const json::object& object, const Path& path, ErrorSink& sink,
                    std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object) {
    const std::string_view name(key.data(), key.size());
    if (std::find(known.begin(), known.end(), name) == known.end())
      sink.fail({&path, name}, "is not a known key");
  }
}

void read_optional(const Fields& fields, std::string_view key, std::optional<std::string>* out) {
  std::string_view text;
  if (fields.string(key, &text)) *out = std::string(text);
}

void read_when(const Fields& rule_fields, ScriptRule* rule) {
  const json::object* object = rule_fields.object("when");
  if (object == nullptr) return;
  const Path path = rule_fields.at("when");
  const Fields when(*object, path, rule_fields.sink());
  refuse_unknown(*object, path, when.sink(), {"turn", "role", "equals", "contains", "matches", "tools"});
  int64_t turn = 0;
  if (when.integer("turn", 1, 1'000'000, &turn)) rule->turn = turn;
  read_optional(when, "role", &rule->role);
  read_optional(when, "equals", &rule->equals);
  read_optional(when, "contains", &rule->contains);
  std::string_view pattern;
  if (when.string("matches", &pattern)) {
    try {
      rule->matches.emplace(std::string(pattern), boost::regex::perl);
    } catch (const std::exception& e) {
      when.fail("matches", fmt::format("is not a regular expression: {}", e.what()));
    }
  }
  const json::value* tools = when.find("tools");
  if (tools == nullptr) return;
  const Path tools_path = when.at("tools");
  if (tools->is_bool()) {
    rule->any_tools = tools->get_bool();
  } else if (const json::array* names = tools->if_array()) {
    for (size_t i = 0; i < names->size(); ++i) {
      std::string_view name;
      if (read_string((*names)[i], {&tools_path, i}, when.sink(), &name)) rule->tools.emplace_back(name);
    }
  } else {
    when.fail("tools", "must be true, false or an array of names");
  }
}

void read_group(const json::value& value, const Path& path, ErrorSink& sink, int32_t vocab,
                ScriptRule* rule) {
  ScriptRule::Group group;
  std::string_view text;
  if (value.is_string()) {
    group.text = view(value.get_string());
  } else if (const json::object* object = value.if_object()) {
    const Fields fields(*object, path, sink);
    refuse_unknown(*object, path, sink, {"text", "tokens", "cost_ms"});
    if (fields.string("text", &text)) group.text = text;
    if (const json::array* tokens = fields.array("tokens")) {
      const Path tokens_path = fields.at("tokens");
      for (size_t i = 0; i < tokens->size(); ++i) {
        int32_t id = 0;
        if (read_token_id((*tokens)[i], {&tokens_path, i}, sink, vocab, &id)) group.tokens.push_back(id);
      }
    }
    fields.integer("cost_ms", 0, kMaxCostMs, &group.cost_ms);
    if (fields.has("text") == fields.has("tokens")) sink.fail(path, "must have either text or tokens");
  } else {
    sink.fail(path, fmt::format("must be a string or an object, not {}", json_type_name(value)));
  }
  rule->groups.push_back(std::move(group));
}

// {"status", "message", "param", "code", more keys}
std::optional<Error> read_error(const Fields& rule_fields, std::string_view key, int64_t default_status,
                                std::initializer_list<std::string_view> more, const json::object** object) {
  *object = rule_fields.object(key);
  if (*object == nullptr) return {};
  const Path path = rule_fields.at(key);
  const Fields fields(**object, path, rule_fields.sink());
  std::vector<std::string_view> known = {"status", "message", "param", "code"};
  known.insert(known.end(), more);
  for (const auto& [name, value] : **object)
    if (std::find(known.begin(), known.end(), std::string_view(name.data(), name.size())) == known.end())
      fields.fail({name.data(), name.size()}, "is not a known key");
  int64_t status = default_status;
  fields.integer("status", 400, 599, &status);
  std::string_view message = "this error is in the script", param, code;
  fields.string("message", &message);
  fields.string("param", &param);
  fields.string("code", &code);
  return Error{int(status), std::string(message), std::string(param), std::string(code)};
}

void read_faults(const Fields& fields, ScriptRule* rule) {
  const json::object* object = nullptr;
  rule->refusal = read_error(fields, "error", 500, {"retry_after_s"}, &object);
  if (object != nullptr) {
    const Path path = fields.at("error");
    Fields(*object, path, fields.sink()).integer("retry_after_s", 0, 86'400, &rule->retry_after_s);
  }
  for (const char* key : {"fail", "cut"}) {
    const json::object* fault = nullptr;
    std::optional<Error> error = read_error(fields, key, 500, {"after_groups"}, &fault);
    if (fault == nullptr) continue;
    if (rule->fault.has_value()) fields.fail(key, "contradicts fail; a rule has one fault");
    const Path path = fields.at(key);
    rule->fault = std::move(error);
    rule->fault_after_groups = 0;
    Fields(*fault, path, fields.sink()).integer("after_groups", 0, kMaxGroups, &rule->fault_after_groups);
    rule->abrupt = key == std::string_view("cut");
  }
}

json::value sample_value(const json::value& schema, int depth) {
  const json::object* s = schema.if_object();
  if (s == nullptr || depth > 8) return "text";
  if (const json::value* fixed = s->if_contains("const")) return *fixed;
  if (const json::value* choices = s->if_contains("enum");
      choices != nullptr && choices->is_array() && !choices->get_array().empty())
    return choices->get_array()[0];
  for (const char* key : {"anyOf", "oneOf"}) {
    if (const json::value* list = s->if_contains(key);
        list != nullptr && list->is_array() && !list->get_array().empty())
      return sample_value(list->get_array()[0], depth + 1);
  }
  const json::value* type = s->if_contains("type");
  if (type != nullptr && type->is_array() && !type->get_array().empty()) type = type->get_array().data();
  const std::string_view name = type != nullptr && type->is_string() ? view(type->get_string()) : "string";
  if (name == "integer" || name == "number") {
    if (const json::value* least = s->if_contains("minimum"); least != nullptr && least->is_number())
      return *least;
    return 1;
  }
  if (name == "boolean") return true;
  if (name == "null") return nullptr;
  if (name == "array") return json::array();
  if (name != "object") return "text";
  json::object out;
  const json::value* required = s->if_contains("required");
  const json::value* properties = s->if_contains("properties");
  if (required == nullptr || !required->is_array()) return out;
  for (const json::value& key : required->get_array()) {
    if (!key.is_string() || out.size() >= 1000) continue;
    const json::value* property = properties != nullptr && properties->is_object()
                                      ? properties->get_object().if_contains(key.get_string())
                                      : nullptr;
    out[key.get_string()] = property != nullptr ? sample_value(*property, depth + 1) : json::value("text");
  }
  return out;
}

}  // namespace

json::object sample_arguments(const json::object& function) {
  const json::value* parameters = function.if_contains("parameters");
  if (parameters == nullptr || !parameters->is_object()) return {};
  json::object schema = parameters->get_object();
  schema["type"] = "object";
  json::value value = sample_value(schema, 0);
  return value.is_object() ? std::move(value.get_object()) : json::object();
}

void read_script_rule(const Fields& fields, int32_t vocab, ScriptRule* rule) {
  refuse_unknown(fields.object(), fields.path(), fields.sink(),
                 {"when", "text", "groups", "first_ms", "group_ms", "finish", "error", "fail", "cut"});
  read_when(fields, rule);
  std::string_view text;
  if (fields.string("text", &text)) {
    rule->split = true;
    rule->groups.push_back({.text = std::string(text), .tokens = {}});
  }
  if (const json::array* groups = fields.array("groups")) {
    const Path path = fields.at("groups");
    for (size_t i = 0; i < groups->size(); ++i)
      read_group((*groups)[i], {&path, i}, fields.sink(), vocab, rule);
  }
  for (const ScriptRule::Group& group : rule->groups)
    if (group.text.find("{{tool}}") != std::string::npos ||
        group.text.find("{{arguments}}") != std::string::npos)
      rule->needs_tool = true;
  fields.integer("first_ms", 0, kMaxCostMs, &rule->first_ms);
  fields.integer("group_ms", 0, kMaxCostMs, &rule->group_ms);
  std::string_view finish = "stop";
  if (fields.string("finish", &finish) && finish != "stop" && finish != "length")
    fields.fail("finish", fmt::format("{} is not one of \"stop\", \"length\"", quote(finish)));
  rule->length = finish == "length";
  read_faults(fields, rule);
  if (fields.has("text") + fields.has("groups") + fields.has("error") != 1)
    fields.sink().fail(fields.path(), "must have exactly one of text, groups, error");
}

}  // namespace invar::api
