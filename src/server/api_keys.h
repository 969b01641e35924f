#pragma once
// ApiKeys: who may ask. Only digests of the keys are kept; comparing takes the same time whatever was sent.

#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "server/request_head.h"

namespace invar::server {

class ApiKeys {
 public:
  explicit ApiKeys(std::span<const std::string> keys);

  bool required() const { return !digests_.empty(); }
  // Index of the key in "Authorization: Bearer KEY" or "x-api-key: KEY"; -1 = none of ours.
  int find(const RequestHead& head) const;
  // Whether a key stands somewhere in `text`, as a word of its own.
  bool mentioned_in(std::string_view text) const;

 private:
  int find_key(std::string_view key) const;

  std::vector<Digest> digests_;
};

}  // namespace invar::server
