#include "api/text_limits.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/tokenizer.h"

namespace invar::api {

size_t max_text_bytes(int32_t context) {
  constexpr size_t kAlways = size_t{1} << 20;
  constexpr size_t kBytesPerToken = 8;
  return std::min(std::max(kAlways, kBytesPerToken * size_t(std::max(context, 0))), text::kMaxEncodedBytes);
}

size_t text_bytes(const json::value& value) {
  constexpr size_t kOther = 8;
  if (value.is_string()) return value.get_string().size();
  if (!value.is_structured()) return kOther;
  size_t bytes = 0;
  if (value.is_array()) {
    for (const json::value& element : value.get_array())
      bytes += text_bytes(element);
  } else {
    for (const auto& [key, member] : value.get_object())
      bytes += key.size() + text_bytes(member);
  }
  return bytes;
}

std::optional<Error> too_much_text(const Service& service, size_t bytes, const char* field) {
  if (bytes <= service.max_text_bytes) return {};
  return Error{400,
               fmt::format("{}: has {} bytes of text, more than the {} bytes that are allowed with a context "
                           "of {} tokens",
                           field, bytes, service.max_text_bytes, service.context),
               field, "context_length_exceeded"};
}

}  // namespace invar::api
