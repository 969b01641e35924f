#include "server/api_keys.h"

namespace invar::server {

ApiKeys::ApiKeys(std::span<const std::string> keys) {
  for (const std::string& key : keys)
    digests_.push_back(sha256(key));
}

int ApiKeys::find_key(std::string_view key) const {
  const Digest asked = sha256(key);
  int found = -1;
  for (size_t i = 0; i < digests_.size(); i++) {
    unsigned difference = 0;
    for (size_t j = 0; j < asked.size(); j++)
      difference |= unsigned(asked[j] ^ digests_[i][j]);
    // All ones where the difference is zero.
    const int equal = -int((difference - 1u) >> 31);
    found = (found & ~equal) | (int(i) & equal);
  }
  return found;
}

bool ApiKeys::mentioned_in(std::string_view text) const {
  constexpr std::string_view kSeparators = " =&?,;\"";
  for (size_t at = 0; at < text.size() && required();) {
    const size_t end = std::min(text.find_first_of(kSeparators, at), text.size());
    if (end > at && find_key(text.substr(at, end - at)) >= 0) return true;
    at = end + 1;
  }
  return false;
}

int ApiKeys::find(const RequestHead& head) const {
  int found = -1;
  if (const std::string* field = head.find("authorization")) {
    constexpr std::string_view kScheme = "Bearer ";
    const std::string_view value = *field;
    if (value.size() > kScheme.size() && equal_ignoring_case(value.substr(0, kScheme.size()), kScheme)) {
      found = find_key(trim(value.substr(kScheme.size())));
    }
  }
  if (found < 0) {
    if (const std::string* field = head.find("x-api-key")) found = find_key(*field);
  }
  return found;
}

}  // namespace invar::server
