#pragma once
// TokenCounts: which tokens a sequence holds and how often it generated each. Kept by a sequence whose
// penalties need it; grows with the number of different tokens.

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace invar {

class TokenCounts {
 public:
  struct Entry {
    int32_t token;
    int32_t generated;  // 0 = only in the prompt
  };

  void add_prompt(int32_t token) { entry(token); }
  void add_generated(int32_t token) { ++entry(token).generated; }
  std::span<const Entry> entries() const { return entries_; }  // each token once

 private:
  Entry& entry(int32_t token) {
    const auto [at, fresh] = index_.try_emplace(token, entries_.size());
    if (fresh) entries_.push_back({token, 0});
    return entries_[at->second];
  }
  std::vector<Entry> entries_;
  std::unordered_map<int32_t, size_t> index_;
};

}  // namespace invar
