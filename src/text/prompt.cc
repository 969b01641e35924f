#include "text/prompt.h"

#include <ctime>
#include <utility>

#include "text/prompt_marks.h"

namespace invar::text {
namespace {

// Which bytes of `text`, the context rendered, are the request's and might spell control tokens.
Result<std::vector<bool>> foreign_bytes(const TextModel& model, std::string_view context, int64_t now,
                                        const RenderOptions& options, std::string_view text) {
  ASSIGN_OR_RETURN(PromptMarks marks, PromptMarks::choose(*model.control, context, text));
  const std::string all = marks.mark(context, PromptMarks::Reach::kAll);
  if (!marks.marked_any()) return std::vector<bool>();
  std::vector<bool> foreign;
  const auto with_all = model.chat_template->render(all, now, options);
  if (with_all.ok() && marks.restore(with_all->text, &foreign) == text) return foreign;

  // The template looks at some of the characters. Where they spell whole tokens it must not; and the tokens
  // that are left must be those that it writes when none comes from the request.
  const Status refused = invalid_argument(
      "messages: the chat template itself looks for characters of control tokens in them, such as '<|', so "
      "that its own tokens cannot be told from theirs; rephrase or remove these characters");
  if (!with_all.ok()) return refused;
  const std::vector<int32_t> own_tokens = model.control->control_ids(with_all->text, {});
  for (const auto reach : {PromptMarks::Reach::kFirsts, PromptMarks::Reach::kLasts}) {
    const std::string spelled = marks.mark(context, reach);
    foreign.assign(text.size(), false);
    if (marks.marked_any()) {
      const auto with_spelled = model.chat_template->render(spelled, now, options);
      if (!with_spelled.ok() || marks.restore(with_spelled->text, &foreign) != text) continue;
    }
    if (model.control->control_ids(text, foreign) == own_tokens) return foreign;
  }
  return refused;
}

}  // namespace

Result<ChatText> chat_text(const TextModel& model, std::string_view context_json, int64_t now_unix,
                           const RenderOptions& options) {
  if (!model.chat_template) return model.template_error;
  RenderOptions how = options;
  how.track_generation = false;
  ASSIGN_OR_RETURN(Rendered rendered, model.chat_template->render(context_json, now_unix, how));
  return ChatText{.text = std::move(rendered.text), .now_unix = now_unix, .options = how};
}

Result<Prompt> chat_prompt(const TextModel& model, std::string_view context_json, int64_t now_unix,
                           const RenderOptions& options) {
  ASSIGN_OR_RETURN(ChatText rendered, chat_text(model, context_json, now_unix, options));
  return chat_prompt(model, context_json, std::move(rendered));
}

Result<Prompt> chat_prompt(const TextModel& model, std::string_view context_json, ChatText rendered) {
  Prompt prompt{.text = std::move(rendered.text), .ids = {}};
  ASSIGN_OR_RETURN(const std::vector<bool> foreign,
                   foreign_bytes(model, context_json, rendered.now_unix, rendered.options, prompt.text));
  ASSIGN_OR_RETURN(prompt.ids, model.control->encode(*model.tokenizer, prompt.text, foreign));
  const Tokenizer& tokenizer = *model.tokenizer;
  if (tokenizer.add_bos() && (prompt.ids.empty() || prompt.ids.front() != tokenizer.bos()))
    prompt.ids.insert(prompt.ids.begin(), tokenizer.bos());
  return prompt;
}

int64_t template_clock() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  if (::localtime_r(&now, &local) == nullptr) return now;
  return now + local.tm_gmtoff;
}

}  // namespace invar::text
