#pragma once
// Script: answers that a file dictates (docs/scripted.md), for tests of clients, parsers and faults. Parsed
// once, immutable, asked by the threads that parse requests.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/object.hpp>

#include "api/protocol.h"
#include "base/status.h"
#include "engine/guard.h"
#include "text/text_model.h"

namespace invar::api {

// What rules look at.
struct ScriptQuestion {
  int32_t turn = 1;
  std::string_view role, text;  // of the last message
  // The "function" objects that are offered, borrowed.
  std::vector<const boost::json::object*> tools;
};

// An answer for one request, tokenized.
struct ScriptedAnswer {
  struct Group {
    std::vector<int32_t> tokens;  // that arrive together
    int64_t cost_ns = 0;          // from the group before it, or from the start
  };
  std::vector<Group> groups;
  bool length = false;  // the answer ends for its length, else by itself

  std::optional<Error> refusal;  // instead of an answer
  int64_t retry_after_s = -1;    // of the refusal; -1: none
  int64_t fault_after = -1;      // tokens before the fault; -1: none
  Error fault;                   // what an error event would say
  bool abrupt = false;           // the connection just ends

  int64_t token_count() const;
  // The reply that `refusal` is, in the shape of a protocol.
  Response refused(Response (*shape)(const Error&)) const;
};

struct ScriptRule;  // script_rule.h

class Script {
 public:
  // Errors name the rule by index, and the field. Token ids must be below `vocab`, that of the model that
  // will be asked.
  static Result<std::unique_ptr<const Script>> parse(std::string_view json, int32_t vocab);
  ~Script();

  // The answer of the first rule that matches. An error if none does. Spellings of control tokens are those
  // tokens in what the script says, and plain text in what it repeats from the request.
  Result<std::shared_ptr<const ScriptedAnswer>> answer(const ScriptQuestion& question,
                                                       const text::TextModel& model) const;

 private:
  Script();
  std::vector<std::unique_ptr<const ScriptRule>> rules_;
};

// Makes the engine say the answer: allows only the next token, forces the rest of its group, waits for the
// cost of each group on the engine thread. end_token: what is sampled after the last token, -1: the answer
// ends with its last token. inner: asked too, may be null.
std::unique_ptr<Guard> make_script_guard(std::shared_ptr<const ScriptedAnswer> answer, int32_t end_token,
                                         std::unique_ptr<Guard> inner);

}  // namespace invar::api
