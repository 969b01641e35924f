#pragma once
// ControlSpellings: how a tokenizer's control tokens are written, and how to tokenize a text in which only
// some of those writings may become tokens. Built once per model, immutable, shared by all threads.
//
// Control tokens are those that Special::kPlain does not read ("<|im_end|>"). Other added tokens ("<think>",
// runs of line ends) are vocabulary: anyone may write them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "text/byte_matcher.h"
#include "text/tokenizer.h"

namespace invar::text {

class ControlSpellings {
 public:
  explicit ControlSpellings(const Tokenizer& tokenizer);

  // Bytes of the longest spelling that stands at the front of the text, 0: none.
  size_t length_at(std::string_view text) const;
  // Characters of the spellings have numbers from 0; -1: none of them.
  int32_t number_of(char32_t character) const;
  char32_t character(int32_t number) const { return characters_[static_cast<size_t>(number)]; }
  int32_t characters() const { return static_cast<int32_t>(characters_.size()); }
  // Whether the character, wherever it stands, may help to spell a token: the punctuation of the spellings.
  bool is_pivot(int32_t number) const { return pivots_[static_cast<size_t>(number)]; }
  // Whether the text is what stands between the punctuation of a spelling: "im_end".
  bool is_core(std::string_view text) const { return cores_.contains(std::string(text)); }
  // Whether a spelling can be left of the tag, <name> or </name>, when a template takes characters out of it
  // and changes their case. True for some from which none can.
  bool hides_in(std::string_view tag) const;

  // foreign [text.size()]: true for bytes that may be no part of a control token. A text that spells none
  // with such bytes gives what Tokenizer::encode with kParse gives.
  Result<std::vector<int32_t>> encode(const Tokenizer& tokenizer, std::string_view text,
                                      const std::vector<bool>& foreign) const;
  // The control tokens that encode() lets through, in order.
  std::vector<int32_t> control_ids(std::string_view text, const std::vector<bool>& foreign) const;

 private:
  struct Found {
    size_t begin, end;
    int32_t id;
  };
  struct Scan {
    std::vector<Found> control;                    // to become tokens, ascending, apart
    std::vector<std::pair<size_t, size_t>> plain;  // spelled with foreign bytes, ascending
  };
  Scan scan(std::string_view text, const std::vector<bool>& foreign) const;

  ByteMatcher matcher_;
  std::vector<int32_t> ids_;  // [patterns]
  std::vector<char32_t> characters_;
  std::vector<bool> pivots_;
  std::unordered_map<char32_t, int32_t> numbers_;
  std::unordered_set<std::string> cores_;
  std::vector<uint64_t> tags_;  // characters of spellings like <s>, as sets
};

}  // namespace invar::text
