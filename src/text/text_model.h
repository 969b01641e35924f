#pragma once
// TextModel: everything about a model's text: tokenizer, chat template, the ids that end an answer. Filled
// once by the command line from whichever file format; immutable and shared by all threads.

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/chat_template.h"
#include "text/control_spellings.h"
#include "text/hf_config.h"
#include "text/tokenizer.h"

namespace invar::text {

struct TextModel {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ControlSpellings> control;  // of the tokenizer
  // Null when the model has none, or has one that does not compile: template_error then says which.
  std::shared_ptr<const ChatTemplate> chat_template;
  Status template_error;
  // Every id that ends an answer: the tokenizer's and those of the generation settings; ascending, without
  // those that the output layer does not have.
  std::vector<int32_t> stop_ids;
};

// What a model file says about its text.
struct TextModelParts {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<NamedTemplate> templates;
  ChatTemplateOptions template_options;
  std::vector<int64_t> stop_ids;                        // besides the tokenizer's own
  int32_t vocab = std::numeric_limits<int32_t>::max();  // rows of the output layer
};
TextModel make_text_model(TextModelParts parts);

// A prompt that no template wrote (the run command's --raw, /v1/completions): the tokenizer's prefix, then
// the text, in which the spelling of a control token is that token. Who may send such prompts may send any
// token.
Result<std::vector<int32_t>> encode_raw(const TextModel& model, std::string_view text);

}  // namespace invar::text
