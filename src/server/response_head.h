#pragma once
// The head of an answer, as text.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace invar::server {

using Fields = std::vector<std::pair<std::string, std::string>>;

const char* reason_phrase(int status);

struct ResponseHead {
  int status = 200;
  std::string_view content_type;           // "" = no such field
  std::optional<uint64_t> content_length;  // none: see chunked
  bool chunked = false;
  bool close = false;
  const Fields* more[2] = {nullptr, nullptr};
};
// With the empty line at its end. Line ends inside a field are replaced by spaces.
void append_head(std::string& out, const ResponseHead& head);

// One chunk of a chunked body; nothing for an empty one.
void append_chunk(std::string& out, std::string_view bytes);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace invar::server
