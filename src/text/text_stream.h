#pragma once
// TextStream: an answer's tokens in, what the client sees out: text, cut before the first stop string, and
// the log-probabilities of its tokens. One per choice, used by the thread of its connection. Holds back no
// more than the start of a character or of a stop string.
//
// Entries: one per token pushed, in order, each released with the last byte it stands for. The bytes of all
// entries are the text's, byte for byte:
//  - a character spread over tokens leaves each its own bytes;
//  - bytes that become U+FFFD in the text do so in the entry of the first of them;
//  - a control token that the text hides has no bytes, only its spelling in Token::text;
//  - what a stop string takes from the text it takes from the entries too; they stay, with fewer bytes or
//  none.
// A token that ends the sequence by its id (a stop id) is no token of the answer and is not pushed.

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "text/detokenizer.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"

namespace invar::text {

struct TokenScore {
  int32_t token;
  float logprob;  // natural log
};

struct LogprobEntry {
  struct Token {
    int32_t id;
    std::string text;   // the bytes as UTF-8, U+FFFD for what is none by itself
    std::string bytes;  // of an alternative: all bytes of the token
    float logprob;
  };
  Token token;
  std::vector<Token> alternatives;  // most likely first
};

// What one or more tokens added to the answer.
struct TextPiece {
  std::string text;  // UTF-8
  std::vector<LogprobEntry> entries;

  bool empty() const { return text.empty() && entries.empty(); }
  void clear() {
    text.clear();
    entries.clear();
  }
};

enum class TextEnd : uint8_t {
  kNone,    // goes on
  kStop,    // a stop id, a stop string
  kLength,  // the limit of tokens
};

class TextStream {
 public:
  struct Options {
    std::shared_ptr<const StopStrings> stops;  // may be nullptr
    Detokenizer::Options decoding;
    bool logprobs = false;   // make entries
    int32_t min_tokens = 0;  // before so many, stop strings are text like any other
  };
  TextStream(std::shared_ptr<const Tokenizer> tokenizer, Options options);

  // A token of the answer, sampled or forced. Appends to `out`. Once a stop string is complete, further
  // tokens are ignored.
  void push(int32_t token, float logprob, std::span<const TokenScore> alternatives, TextPiece& out);
  // No token follows: appends what is held back. `reason`: why the sequence ended; a stop string outranks it.
  void finish(TextEnd reason, TextPiece& out);

  // kNone until a stop string is complete or finish() was called.
  TextEnd end() const { return end_; }
  // The stop string that cut the text, as an index into the list it was compiled from; -1: none.
  int32_t matched() const { return matched_; }

 private:
  struct Pending {
    LogprobEntry entry;
    bool hidden;       // a control token that the text does not show
    size_t undecided;  // bytes of the token whose place in the text is open
    uint64_t end;      // offset in the text behind the entry's bytes
  };

  void add_entry(int32_t token, float logprob, std::span<const TokenScore> alternatives);
  void fill_entries(std::string_view text, std::span<const uint8_t> widths);
  void take(std::string_view text, TextPiece& out);
  void release(size_t bytes, TextPiece& out);
  static void hand_out(Pending& pending, TextPiece& out);
  void release_all(TextPiece& out);
  LogprobEntry::Token described(int32_t id, float logprob) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  Options options_;
  Detokenizer detokenizer_;
  ByteMatcher::State state_ = ByteMatcher::kStart;
  int64_t pushed_ = 0;     // tokens
  std::string held_;       // decoded, not released
  uint64_t released_ = 0;  // bytes of text released
  uint64_t filled_ = 0;    // bytes of text given to entries
  std::deque<Pending> entries_;
  size_t first_undecided_ = 0;  // in entries_
  TextEnd end_ = TextEnd::kNone;
  int32_t matched_ = -1;
  std::string text_;             // scratch
  std::vector<uint8_t> widths_;  // scratch
};

}  // namespace invar::text
