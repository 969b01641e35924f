#pragma once
// A model's chat templates: conversation in, prompt text out, byte for byte what transformers'
// apply_chat_template gives. Compiled once per model, immutable, shared by all threads. Templates come from
// model files and are treated as hostile: source, output, work and recursion are bounded
// (kResourceExhausted). A template that rejects the conversation by raise_exception gives kInvalidArgument
// with its message.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/hf_config.h"

struct iv_template;

namespace invar::text {

struct ChatTemplateOptions {
  // Variables for every render: ("bos_token", "<s>"), ("eos_token", "</s>") and so on.
  std::vector<std::pair<std::string, std::string>> special_tokens;
};

struct RenderOptions {
  std::string_view template_name;  // "": "tool_use" when there are tools, else "default", else the only one
  bool continue_final_message = false;  // end the text inside the last message, without closing it
  bool track_generation = false;        // report where {% generation %} blocks lie
};

struct Rendered {
  struct Range {
    uint64_t begin, end;  // code points of text, half open
    bool operator==(const Range&) const = default;
  };
  std::string text;
  std::vector<Range> generation;
};

class ChatTemplate {
 public:
  static Result<std::shared_ptr<const ChatTemplate>> compile(std::string_view source,
                                                             const ChatTemplateOptions& options);
  static Result<std::shared_ptr<const ChatTemplate>> compile(std::span<const NamedTemplate> templates,
                                                             const ChatTemplateOptions& options);
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // context_json: an object with "messages" (a list of objects), "tools", "documents",
  // "add_generation_prompt" and any further variables of the template. now_unix: the wall clock for
  // strftime_now, seconds since 1970; for local time the caller adds the offset.
  Result<Rendered> render(std::string_view context_json, int64_t now_unix,
                          const RenderOptions& options = {}) const;

 private:
  explicit ChatTemplate(const iv_template* handle) : handle_(handle) {}
  const iv_template* handle_;  // owned
};

}  // namespace invar::text
