#pragma once
// StopStrings: the strings that end an answer, compiled once per request and shared by its choices; and the
// Guard that ends the sequence with the token that completes one. Immutable; the guard lives on the engine
// thread.
//
// Which string wins: the one whose last byte comes first in the text; of several that end there, the longest.
// The text is the one that clients see: decoded, with U+FFFD for broken bytes (detokenizer.h).
// One that is complete before min_tokens tokens have come is text like any other.
// Errors (kInvalidArgument): an empty string, one that is not UTF-8, more than kMaxBytes together.

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "engine/guard.h"
#include "text/byte_matcher.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace invar::text {

class StopStrings {
 public:
  static constexpr size_t kMaxBytes = 256 << 10;

  // Matches carry the index of the string in this list. An empty list gives nullptr.
  static Result<std::shared_ptr<const StopStrings>> compile(std::span<const std::string> strings);

  const ByteMatcher& matcher() const { return matcher_; }

 private:
  explicit StopStrings(std::span<const std::string_view> strings) : matcher_(strings) {}
  ByteMatcher matcher_;
};

// `decoding`: as for the TextStream of the same answer. stops: not nullptr.
std::unique_ptr<Guard> make_stop_guard(std::shared_ptr<const StopStrings> stops,
                                       std::shared_ptr<const Tokenizer> tokenizer,
                                       Detokenizer::Options decoding, int32_t min_tokens = 0);

}  // namespace invar::text
