#pragma once
// Prompts of conversations: rendered by the model's chat template and tokenized so that no text of the
// request becomes a control token, however it is cut, trimmed or joined by the template. Called on any
// thread.
//
// Every string of the context counts as the request's text: contents, names, arguments, tool results, keys; a
// role too, which the caller must have checked, since templates build tokens of roles. A request that spells
// no control token gives exactly the ids of its rendered text. Errors: those of the template
// (chat_template.h), and kInvalidArgument when the template reads characters of control tokens in the
// messages itself, so that its own tokens cannot be told from theirs.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/text_model.h"

namespace invar::text {

struct Prompt {
  std::string text;  // as the template wrote it
  std::vector<int32_t> ids;
};

// A rendered conversation on its way to be a prompt, so that callers can look at its length first.
struct ChatText {
  std::string text;
  int64_t now_unix;
  RenderOptions options;  // borrows the name
};

// context_json: as for ChatTemplate::render: messages, tools, add_generation_prompt. A prefill of the answer
// is the last message, with options.continue_final_message. A BOS token that the tokenizer puts before every
// prompt is added to the ids unless the template wrote it.
Result<Prompt> chat_prompt(const TextModel& model, std::string_view context_json, int64_t now_unix,
                           const RenderOptions& options = {});
// The same in two steps, with the same context.
Result<ChatText> chat_text(const TextModel& model, std::string_view context_json, int64_t now_unix,
                           const RenderOptions& options = {});
Result<Prompt> chat_prompt(const TextModel& model, std::string_view context_json, ChatText rendered);

// The clock that templates show: local time, in seconds since 1970.
int64_t template_clock();

}  // namespace invar::text
