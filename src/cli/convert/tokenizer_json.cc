#include "cli/convert/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.h"
#include "text/gguf_vocab.h"

namespace invar {

namespace json = boost::json;

namespace {

// The steps of a part: its own ones if it is a sequence, else itself.
std::vector<const json::object*> steps_of(const json::object* part) {
  if (part == nullptr) return {};
  std::vector<const json::object*> steps;
  for (const char* key : {"normalizers", "pretokenizers"}) {
    const json::value* list = part->if_contains(key);
    if (list == nullptr || !list->is_array()) continue;
    for (const json::value& inner : list->get_array()) {
      const auto more = steps_of(inner.if_object());
      steps.insert(steps.end(), more.begin(), more.end());
    }
    return steps;
  }
  return {part};
}

}  // namespace

const json::object* object_at(const json::object& o, const char* key) {
  const json::value* v = o.if_contains(key);
  return v == nullptr ? nullptr : v->if_object();
}

std::string_view text_at(const json::object& o, const char* key) {
  const json::value* v = o.if_contains(key);
  const json::string* s = v == nullptr ? nullptr : v->if_string();
  return s == nullptr ? std::string_view() : std::string_view(s->data(), s->size());
}

bool flag_at(const json::object& o, const char* key) {
  const json::value* v = o.if_contains(key);
  return v != nullptr && v->is_bool() && v->get_bool();
}

std::string shown_at(const json::object& o, const char* key) {
  return printable_within(json::serialize(o.contains(key) ? o.at(key) : json::value()), 400);
}

const json::object* find_step(const json::object* part, std::string_view type) {
  for (const json::object* step : steps_of(part))
    if (text_at(*step, "type") == type) return step;
  return nullptr;
}

bool has_only(const json::object* part, std::initializer_list<std::string_view> types) {
  return std::ranges::all_of(steps_of(part), [&](const json::object* step) {
    return std::ranges::find(types, text_at(*step, "type")) != types.end();
  });
}

Status refuse_tokenizer(const std::string& what) {
  return unsupported(fmt::format("tokenizer.json: {}; without DST the model is packed", what));
}

GgufTokenizer unused_vocabulary(int32_t rows) {
  GgufTokenizer t;
  t.tokens.resize(static_cast<size_t>(rows));
  t.types.assign(t.tokens.size(), text::kUnused);
  for (size_t i = 0; i < t.tokens.size(); ++i)
    t.tokens[i] = fmt::format("[PAD{}]", i);
  return t;
}

Status put_token(GgufTokenizer& t, std::string_view text, const json::value* id, int32_t type) {
  if (id == nullptr || !id->is_int64() || id->get_int64() < 0 || id->get_int64() >= int64_t(t.tokens.size()))
    return corrupt(fmt::format("tokenizer.json: token {} has no id below {} (vocab_size)", quote(text),
                               t.tokens.size()));
  const auto i = static_cast<size_t>(id->get_int64());
  t.tokens[i] = text;
  t.types[i] = type;
  return {};
}

bool prefixes_a_blank(const json::object& file) {
  if (find_step(object_at(file, "normalizer"), "Prepend") != nullptr) return true;
  const json::object* blanks = find_step(object_at(file, "pre_tokenizer"), "Metaspace");
  if (blanks == nullptr) return false;
  return blanks->contains("prepend_scheme")
             ? text_at(*blanks, "prepend_scheme") != "never"
             : !blanks->contains("add_prefix_space") || flag_at(*blanks, "add_prefix_space");
}

}  // namespace invar
