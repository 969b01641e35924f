#include "text/text_model.h"

#include <algorithm>
#include <span>
#include <utility>

namespace invar::text {

TextModel make_text_model(TextModelParts parts) {
  TextModel model;
  model.tokenizer = std::move(parts.tokenizer);
  model.control = std::make_shared<const ControlSpellings>(*model.tokenizer);
  if (parts.templates.empty()) {
    model.template_error = not_found(
        "a base model: it has no chat template; give it one (serve and chat: --chat-template FILE), or raw "
        "prompts (run --raw, POST /v1/completions)");
  } else {
    auto compiled = ChatTemplate::compile(std::span(parts.templates), parts.template_options);
    if (compiled.ok())
      model.chat_template = std::move(*compiled);
    else
      model.template_error = compiled.status().with_context("the model's chat template");
  }
  for (const int32_t id : model.tokenizer->stop_ids())
    parts.stop_ids.push_back(id);
  for (const int64_t id : parts.stop_ids)
    if (id >= 0 && id < parts.vocab) model.stop_ids.push_back(static_cast<int32_t>(id));
  std::sort(model.stop_ids.begin(), model.stop_ids.end());
  model.stop_ids.erase(std::unique(model.stop_ids.begin(), model.stop_ids.end()), model.stop_ids.end());
  return model;
}

Result<std::vector<int32_t>> encode_raw(const TextModel& model, std::string_view text) {
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, model.tokenizer->encode(text, Special::kParse));
  const auto prefix = model.tokenizer->prefix();
  ids.insert(ids.begin(), prefix.begin(), prefix.end());
  return ids;
}

}  // namespace invar::text
