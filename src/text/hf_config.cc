#include "text/hf_config.h"

#include <boost/json.hpp>

#include <fmt/format.h>

namespace invar::text {
namespace {

namespace json = boost::json;

constexpr const char* kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

std::string str(const json::string& s) {
  return std::string(s.data(), s.size());
}

// A token is a string, or an object with its text under "content".
Result<std::optional<std::string>> token_text(const json::object& config, const char* key) {
  const json::value* value = config.if_contains(key);
  if (value == nullptr || value->is_null()) return std::optional<std::string>();
  if (const json::string* text = value->if_string()) return std::optional<std::string>(str(*text));
  if (const json::object* object = value->if_object()) {
    const json::value* content = object->if_contains("content");
    if (content != nullptr && content->is_string())
      return std::optional<std::string>(str(content->get_string()));
  }
  return corrupt(
      fmt::format("tokenizer_config.json: {} is neither a string nor an object with content", key));
}

Result<std::optional<bool>> flag(const json::object& config, const char* key) {
  const json::value* value = config.if_contains(key);
  if (value == nullptr || value->is_null()) return std::optional<bool>();
  if (const bool* set = value->if_bool()) return std::optional<bool>(*set);
  return corrupt(fmt::format("tokenizer_config.json: {} is not true or false", key));
}

Result<std::vector<NamedTemplate>> templates(const json::object& config) {
  std::vector<NamedTemplate> found;
  const json::value* value = config.if_contains("chat_template");
  if (value == nullptr || value->is_null()) return found;
  if (const json::string* source = value->if_string()) {
    found.push_back({"default", str(*source)});
    return found;
  }
  const json::array* list = value->if_array();
  if (list == nullptr) return corrupt("tokenizer_config.json: chat_template is neither a string nor a list");
  for (const json::value& entry : *list) {
    const json::object* object = entry.if_object();
    const json::value* name = object != nullptr ? object->if_contains("name") : nullptr;
    const json::value* source = object != nullptr ? object->if_contains("template") : nullptr;
    if (name == nullptr || source == nullptr || !name->is_string() || !source->is_string()) {
      return corrupt("tokenizer_config.json: an entry of chat_template lacks a name or a template");
    }
    found.push_back({str(name->get_string()), str(source->get_string())});
  }
  return found;
}

}  // namespace

std::string_view HfTokenizerConfig::special_token(std::string_view key) const {
  for (const auto& [name, text] : special_tokens) {
    if (name == key) return text;
  }
  return {};
}

Result<HfTokenizerConfig> parse_hf_tokenizer_config(std::string_view text) {
  HfTokenizerConfig config;
  if (text.empty()) return config;
  json::error_code error;
  json::parse_options options;
  options.max_depth = 64;
  const json::value root = json::parse(json::string_view(text.data(), text.size()), error, {}, options);
  if (error) return corrupt("tokenizer_config.json: " + error.message());
  const json::object* object = root.if_object();
  if (object == nullptr) return corrupt("tokenizer_config.json: not a JSON object");
  for (const char* key : kSpecialTokens) {
    ASSIGN_OR_RETURN(std::optional<std::string> token, token_text(*object, key));
    if (token) config.special_tokens.emplace_back(key, std::move(*token));
  }
  ASSIGN_OR_RETURN(config.add_bos, flag(*object, "add_bos_token"));
  ASSIGN_OR_RETURN(config.add_eos, flag(*object, "add_eos_token"));
  ASSIGN_OR_RETURN(config.chat_templates, templates(*object));
  return config;
}

}  // namespace invar::text
