#include "format/json_value.h"

#include <fmt/format.h>

#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <limits>
#include <unordered_set>
#include <utility>

#include "base/quote.h"

namespace invar {
namespace {

namespace json = boost::json;

// Receives the parser's events and builds the document. Returning false stops the parser.
class Builder {
 public:
  static constexpr size_t max_object_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_array_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_key_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_string_size = std::numeric_limits<size_t>::max();

  void set_limits(const JsonLimits& limits) { left_ = limits.values; }
  JsonValue take() { return std::move(root_); }
  const std::string& problem() const { return problem_; }

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code& ec) { return open(JsonValue::Object(), ec); }
  bool on_array_begin(json::error_code& ec) { return open(JsonValue::Array(), ec); }
  bool on_object_end(size_t, json::error_code&) { return close(); }
  bool on_array_end(size_t, json::error_code&) { return close(); }

  bool on_key_part(json::string_view s, size_t, json::error_code&) { return gather(s); }
  bool on_key(json::string_view s, size_t, json::error_code& ec) {
    gather(s);
    if (!keys_.back().insert(text_).second) return fail("key " + quote(text_) + " occurs twice", ec);
    auto& object = std::get<JsonValue::Object>(open_.back()->data);
    object.push_back({std::exchange(text_, {}), JsonValue()});
    return true;
  }
  bool on_string_part(json::string_view s, size_t, json::error_code&) { return gather(s); }
  bool on_string(json::string_view s, size_t, json::error_code& ec) {
    gather(s);
    return put(std::exchange(text_, {}), ec) != nullptr;
  }
  bool on_number_part(json::string_view s, json::error_code&) { return gather(s); }
  bool on_int64(int64_t value, json::string_view, json::error_code& ec) {
    text_.clear();
    return put(value, ec) != nullptr;
  }
  bool on_uint64(uint64_t, json::string_view s, json::error_code& ec) {
    gather(s);
    return fail("integer " + quote(text_) + " does not fit into 64 bits", ec);
  }
  bool on_double(double, json::string_view s, json::error_code& ec) {
    gather(s);
    const std::string text = std::exchange(text_, {});
    double value = 0;  // the parser's own value may be off by its last bit
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      return fail("number " + quote(text) + " is out of range", ec);
    return put(value, ec) != nullptr;
  }
  bool on_bool(bool value, json::error_code& ec) { return put(value, ec) != nullptr; }
  bool on_null(json::error_code& ec) { return put(nullptr, ec) != nullptr; }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 private:
  bool gather(json::string_view s) {
    text_.append(s.data(), s.size());
    return true;
  }
  bool fail(std::string what, json::error_code& ec) {
    problem_ = std::move(what);
    ec = json::error::syntax;
    return false;
  }
  template <class T>
  JsonValue* put(T&& value, json::error_code& ec) {
    if (left_-- == 0) {
      fail("too many values", ec);
      return nullptr;
    }
    JsonValue* at = &root_;
    if (!open_.empty()) {
      if (auto* array = std::get_if<JsonValue::Array>(&open_.back()->data)) {
        at = &array->emplace_back();
      } else {
        at = &std::get<JsonValue::Object>(open_.back()->data).back().value;
      }
    }
    at->data = std::forward<T>(value);
    return at;
  }
  // The parents of an open value do not grow meanwhile, so its address is stable.
  template <class T>
  bool open(T&& empty, json::error_code& ec) {
    JsonValue* at = put(std::forward<T>(empty), ec);
    if (at == nullptr) return false;
    open_.push_back(at);
    keys_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  JsonValue root_;
  std::vector<JsonValue*> open_;
  std::vector<std::unordered_set<std::string>> keys_;  // of the open objects
  std::string text_;                                   // of a token that comes in parts
  std::string problem_;
  size_t left_ = 0;
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  const auto* object = std::get_if<Object>(&data);
  if (object == nullptr) return nullptr;
  for (const auto& [name, value] : *object)
    if (name == key) return &value;
  return nullptr;
}

const char* JsonValue::type_name() const {
  constexpr const char* kNames[] = {"null",     "a bool",   "an integer", "a number",
                                    "a string", "an array", "an object"};
  return kNames[data.index()];
}

Result<JsonValue> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes)
    return corrupt(fmt::format("JSON of {} bytes is longer than {}", text.size(), limits.bytes));
  json::parse_options options;
  options.max_depth = static_cast<size_t>(limits.depth);
  try {
    json::basic_parser<Builder> parser(options);
    parser.handler().set_limits(limits);
    json::error_code ec;
    const size_t used = parser.write_some(false, text.data(), text.size(), ec);
    if (!parser.handler().problem().empty())
      return corrupt(fmt::format("JSON byte {}: {}", used, parser.handler().problem()));
    if (ec) return corrupt(fmt::format("JSON byte {}: {}", used, ec.message()));
    const size_t rest = text.find_first_not_of(" \t\r\n", used);
    if (rest != std::string_view::npos)
      return corrupt(fmt::format("JSON byte {}: text after the document", rest));
    return parser.handler().take();
  } catch (const std::bad_alloc&) {
    return resource_exhausted("out of memory while reading JSON");
  } catch (const std::exception& e) {
    return corrupt(fmt::format("JSON: {}", e.what()));
  }
}

}  // namespace invar
