#pragma once
// TokenCounts: which tokens the last `window` ones of a sequence are, and how often each was generated. Kept
// by a sequence whose penalties need it; grows with the number of different tokens.

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace invar {

class TokenCounts {
 public:
  struct Entry {
    int32_t token;
    int32_t of_prompt;  // occurrences inside the window
    int32_t generated;
  };

  TokenCounts() = default;
  explicit TokenCounts(int32_t window) : window_(window) {}  // -1 = all tokens

  // The last one of `tokens` is new; the first prompt_length are the prompt.
  void appended(std::span<const int32_t> tokens, size_t prompt_length) {
    add(tokens.size() - 1, tokens, prompt_length, 1);
    if (window_ >= 0 && tokens.size() > size_t(window_))
      add(tokens.size() - 1 - size_t(window_), tokens, prompt_length, -1);
  }
  std::span<const Entry> entries() const { return entries_; }  // each token once; both counts may be 0

 private:
  void add(size_t at, std::span<const int32_t> tokens, size_t prompt_length, int32_t change) {
    const auto [found, fresh] = index_.try_emplace(tokens[at], entries_.size());
    if (fresh) entries_.push_back({tokens[at], 0, 0});
    Entry& entry = entries_[found->second];
    (at < prompt_length ? entry.of_prompt : entry.generated) += change;
  }
  int32_t window_ = -1;
  std::vector<Entry> entries_;
  std::unordered_map<int32_t, size_t> index_;
};

}  // namespace invar
