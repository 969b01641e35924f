#pragma once
// Conversation: what a chat request says to a template, checked and brought into one form: "messages",
// "tools" and plain variables. A value of the parsing thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/fields.h"
#include "api/script.h"
#include "api/service.h"
#include "text/prompt.h"

namespace invar::api {

inline constexpr size_t kMaxTools = 512;
inline constexpr size_t kMaxVariables = 64;  // chat_template_kwargs

struct Conversation {
  // {"messages": [...], "tools": [...], "add_generation_prompt": ..., variables ...} for
  // ChatTemplate::render. Every content is a string ("" where there was none), text parts are joined by line
  // breaks, developer messages are system messages, arguments of tool calls are objects, results of tools
  // carry its name.
  json::object context;
  bool continue_final_message = false;  // the answer goes on inside the last message, of the assistant

  // For scripted answers.
  int32_t turn = 1;  // 1 + answers of the assistant so far
  std::string last_role;
  std::string last_text;
  std::vector<const json::object*> tools;  // the "function" objects, in `context`
};

// Faults go to the sink of `fields`: no messages or wrong ones (chat_messages.h), a tool_choice that forces a
// call, variables that would replace the server's.
Conversation read_conversation(const Fields& fields);

// The prompt of a conversation, as text and as ids. Nothing: the sink knows why. in_context: the prompt is
// for an answer, and a text that no tokenizing can make short enough for that is refused, too.
std::optional<text::Prompt> render_conversation(const Service& service, const Conversation& conversation,
                                                bool in_context, ErrorSink& sink);
// What is wrong with a prompt is wrong with the request, however much of the template's budget it used up.
Error prompt_error(const Status& status, const char* field);

ScriptQuestion question_of(const Conversation& conversation);

}  // namespace invar::api
