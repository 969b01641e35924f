#pragma once
// Guard: what must act between two tokens (stop strings, end of reasoning, grammar, tool triggers). Built in
// text/ per request, asked by the engine at commit, on the engine thread only. The engine sees verdicts,
// never text.

#include <cstdint>
#include <memory>
#include <span>

namespace invar {

struct Verdict {
  enum class Action : uint8_t {
    kContinue,
    kStop,        // the sequence ends with this token included
    kStopBefore,  // the sequence ends, this token is not part of the answer
  };
  Action action = Action::kContinue;
  // Tokens that follow without being sampled; valid until the next call. Each of them is accept()ed in its
  // turn; what those calls force is heeded once the last token forced here was accepted.
  std::span<const int32_t> forced;
};

class Guard {
 public:
  virtual ~Guard() = default;
  // Fills a bit per token id (bit i of words[i / 32]): 1 = allowed. False: everything is allowed, words
  // untouched.
  virtual bool mask(std::span<uint32_t> words) = 0;
  // Called once for each token the sequence takes, in order; stop ids of the request end it before this is
  // asked.
  virtual Verdict accept(int32_t token) = 0;
  // A copy in the same state, for a fork of its sequence.
  virtual std::unique_ptr<Guard> clone() const = 0;
};

}  // namespace invar
