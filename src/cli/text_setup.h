#pragma once
// Fills text::TextModel: tokenizer, chat template and stop ids of a model, from GGUF metadata or the side
// files of a Hugging Face folder. The one place where format/ and text/ meet. Errors name the key or file.

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cli/engine_flags.h"
#include "format/model_source.h"
#include "models/model.h"
#include "text/text_model.h"

namespace invar {

struct TextSetupOptions {
  int32_t vocab = std::numeric_limits<int32_t>::max();  // rows of the output layer
  std::string chat_template;                            // replaces the model's own; "" = none given
};
Result<text::TextModel> set_up_text(const ModelSource& source, const TextSetupOptions& options = {});

// A model with what its text needs; stop ids are rows of its output layer.
struct ModelWithText {
  std::shared_ptr<const Model> model;
  text::TextModel text;
};
// Without a check both are made at once, each on a thread of its own: a vocabulary takes longer than weights
// that are packed already. With one, all that can be said without weights is said before they are loaded,
// since they may have to be packed: whether the model runs, its text, and what `check` says of that.
Result<ModelWithText> load_with_text(const EngineFlags& flags, const std::string& chat_template,
                                     const std::function<Status(const text::TextModel&)>& check = nullptr);

// Of --chat-template. "": none given.
Result<std::string> read_chat_template(const std::string& path);

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// The prompt that asks for the next assistant message (text/prompt.h).
Result<std::vector<int32_t>> encode_chat(const text::TextModel& model,
                                         const std::vector<ChatMessage>& messages);

using text::encode_raw;

}  // namespace invar
