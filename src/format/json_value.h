#pragma once
// JsonValue: a JSON document as plain values, for files that are not trusted. Unlike a general reader it
// refuses duplicate keys and reads numbers exactly (every double is the nearest to its text). Internal to
// format/.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"

namespace invar {

struct JsonMember;

struct JsonValue {
  using Array = std::vector<JsonValue>;
  using Object = std::vector<JsonMember>;  // in the order of the file
  std::variant<std::nullptr_t, bool, int64_t, double, std::string, Array, Object> data;

  const JsonValue* find(std::string_view key) const;  // of an object; nullptr otherwise or if absent
  const char* type_name() const;
};

struct JsonMember {
  std::string name;
  JsonValue value;
};

struct JsonLimits {
  size_t bytes;   // of the text
  size_t values;  // in the document
  int depth = 32;
};

// Errors say at which byte. An integer beyond 64 bits is an error.
Result<JsonValue> parse_json(std::string_view text, const JsonLimits& limits);

}  // namespace invar
