#pragma once
// TextModel: everything about a model's text: tokenizer, chat template, the ids that end an answer. Filled
// once by the command line from whichever file format; immutable and shared by all threads.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace invar::text {

struct TextModel {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // nullptr: template_error says why
  Status template_error;
  std::vector<int32_t> stop_ids;  // ascending, of the output layer
};

// A prompt that no template wrote: text with special tokens parsed, prefix() in front.
Result<std::vector<int32_t>> encode_raw(const TextModel& model, std::string_view text);

}  // namespace invar::text
