#pragma once
// HfConfig: typed reading of a JSON configuration file (config.json, generation_config.json). Immutable,
// thread-safe. Keys may be nested with dots: "rope_scaling.factor". An absent key and null are nullopt; a
// value of another type, also around a nested key, is an error that names file and key. Models of several
// parts keep their decoder's keys in "text_config": these are found first, without that prefix, then those
// around it.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace invar {

struct JsonValue;

class HfConfig {
 public:
  // label names the file in messages.
  static Result<HfConfig> parse(std::string_view text, const std::string& label);
  HfConfig(HfConfig&&) noexcept;
  HfConfig& operator=(HfConfig&&) noexcept;
  ~HfConfig();

  bool has(std::string_view key) const;                  // present and not null
  Result<bool> has_members(std::string_view key) const;  // an object that is not empty; absent: false
  Result<std::optional<int64_t>> get_int(std::string_view key) const;
  Result<std::optional<double>> get_double(std::string_view key) const;  // an integer also counts
  Result<std::optional<bool>> get_bool(std::string_view key) const;
  Result<std::optional<std::string>> get_string(std::string_view key) const;
  Result<std::optional<std::vector<int64_t>>> get_ints(std::string_view key) const;  // integers or bools
  Result<std::optional<std::vector<double>>> get_doubles(std::string_view key) const;
  Result<std::optional<std::vector<std::string>>> get_strings(std::string_view key) const;

 private:
  HfConfig(std::string label, std::unique_ptr<JsonValue> root);
  Result<const JsonValue*> find(std::string_view key) const;
  Result<const JsonValue*> find_in(const JsonValue* at, std::string_view key) const;
  Status wrong_type(std::string_view key, const char* wanted, const JsonValue& value) const;

  std::string label_;
  std::unique_ptr<JsonValue> root_;
};

}  // namespace invar
