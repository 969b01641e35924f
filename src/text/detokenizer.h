#pragma once
// Token ids to text, one id at a time: a table walk with a few bytes of state per stream, used by one thread.
// What push() hands out is always whole UTF-8 characters; bytes that can no longer become one turn into
// U+FFFD, one for each broken sequence, or one for each byte where the vocabulary has byte-fallback tokens
// (as its own decoder does).

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace invar::text {

class Detokenizer {
 public:
  struct Options {
    bool skip_control = true;  // control tokens give no text
    // The ids start a text of their own. SentencePiece writes a blank in front of every text, which is taken
    // off there; in the middle of a text, say an answer that continues a prompt, it is part of the text.
    bool at_text_start = false;
  };

  Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, Options options);

  // Appends to `out` what the id makes certain. Ids without a token give nothing. `widths`, where given, gets
  // one number for each byte of shown tokens whose fate is certain now, oldest first: the bytes of `out` that
  // stand for it. 1: itself, 0: none, 3: U+FFFD for it and the bytes with 0 behind it.
  void push(int32_t id, std::string& out, std::vector<uint8_t>* widths = nullptr);
  // The end of the stream: appends what is left. The stream then starts afresh, in the middle of a text.
  void finish(std::string& out, std::vector<uint8_t>* widths = nullptr);

 private:
  void push_byte(uint8_t byte, std::string& out, std::vector<uint8_t>* widths);
  void drop_pending(std::string& out, std::vector<uint8_t>* widths);

  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_control_;
  bool replace_each_byte_;
  int strip_left_;                 // blanks still to take off the front
  std::array<char, 4> pending_{};  // the start of a character
  int pending_size_ = 0;
  int pending_length_ = 0;  // bytes of the character that the first byte announces
};

// The text of all ids at once.
std::string detokenize(std::shared_ptr<const Tokenizer> tokenizer, std::span<const int32_t> ids,
                       Detokenizer::Options options);

}  // namespace invar::text
