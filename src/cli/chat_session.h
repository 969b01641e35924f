#pragma once
// ChatSession: a conversation as the requests that carry it on; ChatAnswer: the text in the stream that comes
// back. No terminal and no transport. Values of one thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/object.hpp>

#include "base/status.h"
#include "cli/sse_reader.h"
#include "engine/request.h"

namespace invar {

// How tokens are chosen and when an answer ends, as members of a request: of the numbers those that were
// `said`, since the server knows better defaults; the seed only if `with_seed`; links: "samplers", empty =
// none.
boost::json::object generation_members(const GenerateRequest& settings, bool with_seed,
                                       const std::vector<std::string>& said,
                                       const std::vector<std::string>& links = {});

class ChatSession {
 public:
  explicit ChatSession(boost::json::object members) : members_(std::move(members)) {}

  void set_system(std::string text) { system_ = std::move(text); }  // "": none
  const std::string& system() const { return system_; }
  void clear() { turns_.clear(); }  // the system message stays

  // The body that asks for the answer to a message; the message becomes part of the conversation with
  // add_turn().
  std::string request(std::string_view message) const;
  void add_turn(std::string message, std::string answer);

 private:
  struct Turn {
    std::string message, answer;
  };
  boost::json::object members_;
  std::string system_;
  std::vector<Turn> turns_;
};

class ChatAnswer {
 public:
  // Appends the text that these bytes bring to `fresh`.
  Status feed(std::string_view bytes, std::string& fresh);

  const std::string& text() const { return text_; }
  bool ended() const { return !finish_reason_.empty(); }
  bool cut() const { return finish_reason_ == "length"; }
  int64_t tokens() const { return tokens_; }  // of the answer; 0: not known
  // The message of an error that came in the stream; "": none.
  const std::string& error() const { return error_; }

 private:
  void frame(std::string_view data, std::string& fresh);

  SseReader reader_;
  std::string text_, finish_reason_, error_;
  int64_t tokens_ = 0;
};

struct ApiErrorText {
  std::string message, code;
};
// Of an answer that is no 200; the body itself where it has no message.
ApiErrorText api_error(int status, std::string_view body);

// An answer for a terminal: lines and tabs stay, other control characters, and what turns the direction of
// writing, are spelled out.
std::string answer_for_terminal(std::string_view text);

}  // namespace invar
