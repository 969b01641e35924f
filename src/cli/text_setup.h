#pragma once
// TextSetup: tokenizer, chat template and stop ids of a model, from GGUF metadata or the side files of a
// Hugging Face folder. The one place where format/ and text/ meet. Immutable after set_up_text, shared by all
// threads. Errors name the key or file.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "format/model_source.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace invar {

struct TextSetup {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  // Null when the model has none, or has one that does not compile: template_error then says which.
  std::shared_ptr<const text::ChatTemplate> chat_template;
  Status template_error;
  // Every id that ends an answer: the tokenizer's and those of the generation settings, ascending.
  std::vector<int32_t> stop_ids;
};

Result<TextSetup> set_up_text(const ModelSource& source);

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// The prompt that asks for the next assistant message. A BOS token that the tokenizer adds to every prompt is
// added unless the template wrote it.
Result<std::vector<int32_t>> encode_chat(const TextSetup& setup, const std::vector<ChatMessage>& messages);

// Text without a template, with the tokens that the tokenizer puts in front of a prompt.
Result<std::vector<int32_t>> encode_raw(const TextSetup& setup, std::string_view text);

}  // namespace invar
