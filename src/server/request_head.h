#pragma once
// The head of an HTTP request, after the parser has accepted it, and what its target means. Values only.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace invar::server {

struct RequestHead {
  std::string method;
  std::string target;
  int minor_version = 1;  // of HTTP/1
  // Names in lower case, values without space around them, in the order received.
  std::vector<std::pair<std::string, std::string>> fields;
  std::optional<uint64_t> content_length;
  bool chunked = false;
  bool keep_alive = true;

  // The first field of that name (lower case); nullptr: none.
  const std::string* find(std::string_view name) const;
  bool has_body() const { return chunked || content_length.value_or(0) > 0; }
};

struct Target {
  std::string path;   // percent-decoded; a broken escape stays as it is and so matches no route
  std::string query;  // as sent, without the "?"
};
// Origin form ("/v1/models?x") or absolute form ("http://host/v1/models").
Target parse_target(std::string_view target);

// ASCII only.
bool equal_ignoring_case(std::string_view a, std::string_view b);
std::string to_lower(std::string_view text);
std::string_view trim(std::string_view text);
// A method or a field name is a token (RFC 9110, 5.6.2).
bool is_token_character(char c);
bool is_token(std::string_view text);

}  // namespace invar::server
