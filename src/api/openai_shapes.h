#pragma once
// Pieces of JSON that the chat and the completions protocol share. They append to a string. Any thread.

#include <string>

#include "api/generation.h"
#include "text/text_stream.h"

namespace invar::api {

// {"prompt_tokens", "completion_tokens", "total_tokens", details}
void append_usage(std::string& out, const Usage& usage);

// What the replies of one request have in common.
struct ReplyHead {
  std::string id, model, fingerprint;
  int64_t created = 0;  // unix seconds

  // {"id":...,"object":OBJECT,"created":...,"model":...,"system_fingerprint":...  without the end
  std::string opening(const char* object) const;
};
ReplyHead make_reply_head(const Service& service, const char* id_prefix);

// ,"invar":{...}: the receipt of the given choices' tokens
void append_receipt_member(std::string& out, const Generation& generation,
                           std::span<const std::vector<int32_t>> ids);

// An entry of logprobs.content of a chat reply.
void append_chat_logprob(std::string& out, const text::LogprobEntry& entry);

// The logprobs of a completions reply: four lists, of which a stream sends the new parts. Offsets count code
// points of the choice's text from its beginning.
class CompletionLogprobs {
 public:
  // Which token this is. kFirst: it has no score, as the first one of a prompt.
  enum class Place { kFirst, kLater };
  void add(const text::LogprobEntry& entry, Place place, bool alternatives);
  // The text goes on with what no token stands for.
  void skip(std::string_view text);
  // {"tokens":[...],...} of what was added since the last call; null if there was nothing.
  void append_and_clear(std::string& out);

 private:
  std::string tokens_, token_logprobs_, top_logprobs_, text_offset_;
  int64_t characters_ = 0;
};

}  // namespace invar::api
