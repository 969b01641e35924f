#include "api/fields.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "api/json_text.h"

namespace invar::api {
namespace {

constexpr double kExactIntegers = 9007199254740992.0;  // 2^53

// A number for a message, whatever its kind.
std::string shown(const json::value& value) {
  std::string text;
  append_json(text, value);
  return text.size() > 40 ? text.substr(0, 40) + "..." : text;
}

}  // namespace

std::string Path::text() const {
  if (parent_ == nullptr) return {};
  std::string text = parent_->text();
  if (index_ >= 0) return text + fmt::format("[{}]", index_);
  if (!text.empty()) text += '.';
  if (key_.size() > 64) return text + "...";
  return text.append(key_);
}

void ErrorSink::fail(const Path& path, std::string_view what, std::string_view code) {
  if (error_.has_value()) return;
  std::string field = path.text();
  std::string message = field.empty() ? std::string(what) : fmt::format("{}: {}", field, what);
  error_ = Error{400, std::move(message), std::move(field), std::string(code)};
}

void ErrorSink::fail_with(Error error) {
  if (!error_.has_value()) error_ = std::move(error);
}

const char* json_type_name(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a boolean";
    case json::kind::int64:
    case json::kind::uint64:
      return "an integer";
    case json::kind::double_:
      return "a number";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
  }
  return "?";
}

std::string_view view(const json::string& s) {
  return {s.data(), s.size()};
}

bool read_bool(const json::value& value, const Path& path, ErrorSink& sink, bool* out) {
  if (!value.is_bool()) {
    sink.fail(path, fmt::format("must be true or false, not {}", json_type_name(value)));
    return false;
  }
  *out = value.get_bool();
  return true;
}

bool read_number(const json::value& value, const Path& path, ErrorSink& sink, double min, double max,
                 double* out) {
  if (!value.is_number()) {
    sink.fail(path, fmt::format("must be a number, not {}", json_type_name(value)));
    return false;
  }
  const double x = value.is_double()  ? value.get_double()
                   : value.is_int64() ? double(value.get_int64())
                                      : double(value.get_uint64());
  if (!(x >= min && x <= max)) {
    sink.fail(path, fmt::format("{} is not within {} and {}", shown(value), min, max));
    return false;
  }
  *out = x;
  return true;
}

bool read_integer(const json::value& value, const Path& path, ErrorSink& sink, int64_t min, int64_t max,
                  int64_t* out) {
  int64_t x = 0;
  bool fits = true;
  if (value.is_int64()) {
    x = value.get_int64();
  } else if (value.is_uint64()) {
    fits = false;  // beyond int64
  } else if (value.is_double() && value.get_double() == std::trunc(value.get_double())) {
    fits = std::fabs(value.get_double()) <= kExactIntegers;
    if (fits) x = int64_t(value.get_double());
  } else {
    sink.fail(path, fmt::format("must be an integer, not {}", json_type_name(value)));
    return false;
  }
  if (!fits || x < min || x > max) {
    sink.fail(path, fmt::format("{} is not within {} and {}", shown(value), min, max));
    return false;
  }
  *out = x;
  return true;
}

bool read_string(const json::value& value, const Path& path, ErrorSink& sink, std::string_view* out) {
  if (!value.is_string()) {
    sink.fail(path, fmt::format("must be a string, not {}", json_type_name(value)));
    return false;
  }
  *out = view(value.get_string());
  return true;
}

const json::value* Fields::find(std::string_view key) const {
  const json::value* value = object_.if_contains({key.data(), key.size()});
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool Fields::boolean(std::string_view key, bool* out) const {
  const json::value* value = find(key);
  return value != nullptr && read_bool(*value, at(key), sink_, out);
}

bool Fields::number(std::string_view key, double min, double max, double* out) const {
  const json::value* value = find(key);
  return value != nullptr && read_number(*value, at(key), sink_, min, max, out);
}

bool Fields::integer(std::string_view key, int64_t min, int64_t max, int64_t* out) const {
  const json::value* value = find(key);
  return value != nullptr && read_integer(*value, at(key), sink_, min, max, out);
}

bool Fields::string(std::string_view key, std::string_view* out) const {
  const json::value* value = find(key);
  return value != nullptr && read_string(*value, at(key), sink_, out);
}

const json::array* Fields::array(std::string_view key) const {
  const json::value* value = find(key);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) fail(key, fmt::format("must be an array, not {}", json_type_name(*value)));
  return value->if_array();
}

const json::object* Fields::object(std::string_view key) const {
  const json::value* value = find(key);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) fail(key, fmt::format("must be an object, not {}", json_type_name(*value)));
  return value->if_object();
}

bool Fields::required_string(std::string_view key, std::string_view* out) const {
  if (string(key, out)) return true;
  if (!has(key)) fail(key, "is missing; it must be a string");
  return false;
}

void Fields::fail(std::string_view key, std::string_view what, std::string_view code) const {
  sink_.fail(at(key), what, code);
}

}  // namespace invar::api
