#pragma once
// ByteMatcher: finds many byte strings in a stream at once (Aho-Corasick), one step per byte, and walks them
// as a plain trie. About 21 bytes of memory per distinct prefix of the patterns. Immutable, shared by all
// threads; a stream's position is one State.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace invar::text {

class ByteMatcher {
 public:
  using State = uint32_t;
  static constexpr State kStart = 0;
  static constexpr State kNone = UINT32_MAX;

  // Patterns: none empty, all together below 2^31 bytes. They are known by their index in this list; of equal
  // ones the first counts.
  explicit ByteMatcher(std::span<const std::string_view> patterns);

  // The longest end of the stream that starts a pattern is what a state stands for.
  State next(State state, uint8_t byte) const;
  // Bytes of that end.
  uint32_t depth(State state) const { return depth_[state]; }
  // The longest pattern that the stream ends with, -1: none.
  int32_t match(State state) const { return match_[state]; }

  // The trie alone: the state one byte deeper, kNone when no pattern goes on like this.
  State child(State state, uint8_t byte) const;
  // The pattern that the state spells from its first to its last byte, -1: none.
  int32_t spelled(State state) const {
    return match_[state] >= 0 && lengths_[match_[state]] == depth_[state] ? match_[state] : -1;
  }

  uint32_t length(int32_t pattern) const { return lengths_[pattern]; }
  uint32_t longest() const { return longest_; }

 private:
  // States are numbered by depth; the children of one are neighbours, in ascending order of their bytes.
  std::vector<uint32_t> first_child_;  // [states + 1]
  std::vector<uint8_t> byte_;          // [states], the last byte of each
  std::vector<State> fail_;            // [states], the longest shorter end that starts a pattern
  std::vector<uint32_t> depth_;        // [states]
  std::vector<int32_t> match_;         // [states]
  std::vector<uint32_t> lengths_;      // [patterns]
  std::array<State, 256> root_{};      // children of kStart, kStart = none
  uint32_t longest_ = 0;
};

}  // namespace invar::text
