// POST /v1/completions: text goes on, from one prompt or several.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "api/chat_conversation.h"
#include "api/fields.h"
#include "api/generation.h"
#include "api/json_text.h"
#include "api/openai_error.h"
#include "api/openai_shapes.h"
#include "api/request_document.h"
#include "api/routes.h"
#include "api/text_limits.h"
#include "text/detokenizer.h"

namespace invar::api {
namespace {

constexpr int64_t kDefaultMaxTokens = 16;

struct Prompt {
  std::vector<int32_t> ids;
  size_t prefix;     // ids that the tokenizer put in front
  std::string text;  // as sent, or the text of the ids sent
};

struct CompletionOptions {
  bool echo = false;
  bool alternatives = false;        // top_logprobs lists more than the chosen token
  std::vector<std::string> echoes;  // of each prompt, if echo
};

class CompletionRenderer final : public Renderer {
 public:
  CompletionRenderer(const Generation& generation, CompletionOptions options)
      : generation_(generation),
        options_(std::move(options)),
        head_(make_reply_head(generation.service(), "cmpl-")),
        chunk_("data: " + head_.opening("text_completion") + R"(,"choices":[{"index":)"),
        chunk_end_(generation.plan().fields.include_usage ? R"(],"usage":null)" : "]"),
        prompts_(generation.plan().prompts.size()),
        answers_(generation.choices().size()) {}

  void prompt_piece(int32_t prompt, const text::TextPiece& piece) override {
    PromptScores& state = prompts_[prompt];
    for (const text::LogprobEntry& entry : piece.entries) {
      using Place = CompletionLogprobs::Place;
      state.scores.add(entry, state.tokens == 0 ? Place::kFirst : Place::kLater, options_.alternatives);
      ++state.tokens;
    }
  }

  void start(const Choice& choice, std::string& out) override {
    if (!options_.echo) return;
    Answer& answer = answers_[choice.index];
    const std::string& echo = options_.echoes[choice.prompt];
    if (generation_.plan().score_prompt) {
      answer.logprobs = prompts_[choice.prompt].scores;
    } else {
      answer.logprobs.skip(echo);
    }
    if (generation_.streaming()) {
      chunk(choice, echo, out);
    } else {
      answer.text = echo;
    }
  }

  void piece(const Choice& choice, std::string& out) override {
    Answer& answer = answers_[choice.index];
    for (const text::LogprobEntry& entry : choice.piece.entries)
      answer.logprobs.add(entry, CompletionLogprobs::Place::kLater, options_.alternatives);
    if (generation_.streaming()) {
      chunk(choice, choice.piece.text, out);
    } else {
      answer.text += choice.piece.text;
    }
  }

  void end(const Choice& choice, bool last, std::string& out) override {
    if (!generation_.streaming()) return;
    out += chunk_;
    append_json_int(out, choice.index);
    out += R"(,"text":"","logprobs":null,"finish_reason":")";
    out += choice.finish_reason();
    out += "\"}";
    out += chunk_end_;
    const bool usage = generation_.plan().fields.include_usage;
    if (last && !usage) append_receipt(out, in_order());
    out += "}\n\n";
    if (!last) return;
    if (usage) {
      out += "data: " + head_.opening("text_completion") + R"(,"choices":[],"usage":)";
      append_usage(out, generation_.usage());
      append_receipt(out, in_order());
      out += "}\n\n";
    }
    out += "data: [DONE]\n\n";
  }

  Response body() override {
    const std::vector<size_t> chosen = chosen_choices();
    Response response;
    std::string& out = response.body;
    out = head_.opening("text_completion") + R"(,"choices":)";
    char before = '[';
    for (size_t i = 0; i < chosen.size(); ++i) {
      const Choice& choice = generation_.choices()[chosen[i]];
      Answer& answer = answers_[chosen[i]];
      out += before;
      out += R"({"index":)";
      append_json_int(out, int64_t(i));
      out += R"(,"text":)";
      append_json_string(out, answer.text);
      out += R"(,"logprobs":)";
      append_logprobs(answer, out);
      out += R"(,"finish_reason":")";
      out += choice.finish_reason();
      out += "\"}";
      before = ',';
    }
    out += R"(],"usage":)";
    append_usage(out, generation_.usage());
    append_receipt(out, chosen);
    out += '}';
    return response;
  }

  void error_frame(const Error& error, std::string& out) override { append_openai_error_frame(out, error); }

  Response error_body(const Error& error) override { return openai_error(error); }

 private:
  struct PromptScores {
    CompletionLogprobs scores;
    size_t tokens = 0;
  };
  struct Answer {
    std::string text;
    CompletionLogprobs logprobs;
  };

  void append_logprobs(Answer& answer, std::string& out) {
    if (generation_.plan().entries) {
      answer.logprobs.append_and_clear(out);
    } else {
      out += "null";
    }
  }

  void chunk(const Choice& choice, std::string_view text, std::string& out) {
    out += chunk_;
    append_json_int(out, choice.index);
    out += R"(,"text":)";
    append_json_string(out, text);
    out += R"(,"logprobs":)";
    append_logprobs(answers_[choice.index], out);
    out += R"(,"finish_reason":null})";
    out += chunk_end_;
    out += "}\n\n";
  }

  std::vector<size_t> in_order() const {
    std::vector<size_t> all(generation_.choices().size());
    std::iota(all.begin(), all.end(), size_t{0});
    return all;
  }

  // Of each prompt the n choices with the best mean log-probability, best first; all of them if n is as many.
  std::vector<size_t> chosen_choices() const {
    const GenerationPlan& plan = generation_.plan();
    std::vector<size_t> all = in_order();
    if (plan.choices == plan.fields.n) return all;
    const auto mean = [&](size_t i) {
      const Choice& choice = generation_.choices()[i];
      return choice.ids.empty() ? 0.0 : choice.logprob_sum / double(choice.ids.size());
    };
    std::vector<size_t> chosen;
    for (auto at = all.begin(); at != all.end(); at += plan.choices) {
      std::sort(at, at + plan.choices,
                [&](size_t a, size_t b) { return std::pair(-mean(a), a) < std::pair(-mean(b), b); });
      chosen.insert(chosen.end(), at, at + plan.fields.n);
    }
    return chosen;
  }

  void append_receipt(std::string& out, const std::vector<size_t>& chosen) {
    std::vector<std::vector<int32_t>> ids;
    for (const size_t i : chosen)
      ids.push_back(generation_.choices()[i].ids);
    append_receipt_member(out, generation_, ids);
  }

  const Generation& generation_;  // owns this
  const CompletionOptions options_;
  const ReplyHead head_;
  const std::string chunk_, chunk_end_;
  std::vector<PromptScores> prompts_;
  std::vector<Answer> answers_;
};

void read_text_prompt(const json::value& value, const Path& path, const Fields& fields,
                      const Service& service, std::vector<Prompt>* out) {
  std::string_view text;
  if (!read_string(value, path, fields.sink(), &text)) return;
  if (auto error = surely_too_long(service, text.size(), "prompt"))
    return fields.sink().fail_with(std::move(*error));
  if (auto error = too_much_text(service, text.size(), "prompt"))
    return fields.sink().fail_with(std::move(*error));
  auto ids = text::encode_raw(*service.text, text);
  if (!ids.ok()) return fields.sink().fail_with(prompt_error(ids.status(), "prompt"));
  if (ids->empty()) return fields.sink().fail(path, "has no tokens");
  out->push_back({std::move(*ids), service.text->tokenizer->prefix().size(), std::string(text)});
}

void read_id_prompt(const json::array& list, const Path& path, const Fields& fields, const Service& service,
                    std::vector<Prompt>* out) {
  if (list.empty()) return fields.sink().fail(path, "has no tokens");
  if (list.size() > size_t(service.context))
    return fields.sink().fail_with(
        context_exceeded(service, fmt::format("{} tokens", list.size()), "prompt"));
  Prompt prompt{};
  prompt.ids.resize(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    if (!read_token_id(list[i], {&path, i}, fields.sink(), service.vocab, &prompt.ids[i])) return;
  }
  prompt.text =
      text::detokenize(service.text->tokenizer, prompt.ids, {.skip_control = false, .at_text_start = true});
  out->push_back(std::move(prompt));
}

// A string, an array of strings, an array of ids, an array of arrays of ids.
std::vector<Prompt> read_prompts(const Fields& fields, const Service& service) {
  std::vector<Prompt> out;
  const json::value* value = fields.find("prompt");
  const Path path = fields.at("prompt");
  if (value == nullptr) {
    fields.fail("prompt", "is missing; it must be a string, an array of strings or of token ids");
  } else if (value->is_string()) {
    read_text_prompt(*value, path, fields, service, &out);
  } else if (!value->is_array()) {
    fields.fail("prompt", fmt::format("must be a string or an array, not {}", json_type_name(*value)));
  } else if (value->get_array().empty()) {
    fields.fail("prompt", "is empty");
  } else if (value->get_array()[0].is_number()) {
    read_id_prompt(value->get_array(), path, fields, service, &out);
  } else {
    const json::array& list = value->get_array();
    if (list.size() > size_t(service.max_prompts)) {
      fields.fail("prompt",
                  fmt::format("has {} prompts; at most {} are allowed", list.size(), service.max_prompts));
      return out;
    }
    for (size_t i = 0; i < list.size() && !fields.sink().failed(); ++i) {
      const Path at(&path, i);
      if (list[i].is_array()) {
        read_id_prompt(list[i].get_array(), at, fields, service, &out);
      } else if (list[i].is_string()) {
        read_text_prompt(list[i], at, fields, service, &out);
      } else {
        fields.sink().fail(
            at, fmt::format("must be a string or an array of token ids, not {}", json_type_name(list[i])));
      }
    }
  }
  return out;
}

void read_options(const Fields& fields, const Service& service, GenerationPlan* plan,
                  CompletionOptions* options) {
  fields.boolean("echo", &options->echo);
  if (plan->fields.max_tokens == 0 && !options->echo)
    fields.fail(fields.has("max_completion_tokens") ? "max_completion_tokens" : "max_tokens",
                "0 is only allowed together with \"echo\": true");
  std::string_view suffix;
  if (fields.string("suffix", &suffix))
    fields.fail("suffix", "is not supported by the served model", "unsupported_parameter");

  int64_t logprobs = -1;
  fields.integer("logprobs", 0, kMaxLogprobs, &logprobs);
  plan->entries = logprobs >= 0;
  options->alternatives = logprobs > 0;
  plan->score_prompt = plan->entries && options->echo;
  plan->fields.sampling.logprobs = int32_t(logprobs);

  int64_t best_of = plan->fields.n;
  if (fields.integer("best_of", 1, service.max_choices, &best_of)) {
    if (best_of < plan->fields.n)
      fields.fail("best_of", fmt::format("must be at least n, {}", plan->fields.n));
    if (plan->fields.stream && best_of > plan->fields.n)
      fields.fail("best_of", "above n is not possible with \"stream\": true");
    if (best_of > plan->fields.n)
      plan->fields.sampling.logprobs = std::max(plan->fields.sampling.logprobs, 0);
  }
  plan->choices = int32_t(best_of);
}

}  // namespace

Outcome post_completions(const Call& call) {
  const Service& service = call.service;
  RequestDocument document(call.request.body);
  if (document.failed()) return openai_error(document.error());
  const Fields& fields = document.fields();
  check_model(fields, service);
  refuse_unsupported(fields);
  GenerationPlan plan;
  CompletionOptions options;
  plan.prompt_field = "prompt";
  plan.default_max_tokens = kDefaultMaxTokens;
  plan.fields = read_generation_fields(fields, service, 0);
  read_options(fields, service, &plan, &options);
  if (document.failed()) return openai_error(document.error());
  std::vector<Prompt> prompts = read_prompts(fields, service);
  if (document.failed()) return openai_error(document.error());

  for (Prompt& prompt : prompts) {
    PlannedPrompt planned{.ids = std::move(prompt.ids), .prefix = prompt.prefix, .script = nullptr};
    if (service.script != nullptr) {
      auto answer = service.script->answer({.turn = 1, .role = "user", .text = prompt.text, .tools = {}},
                                           *service.text);
      if (!answer.ok()) return openai_error(error_of(answer.status()));
      if ((*answer)->refusal.has_value()) return (*answer)->refused(openai_error);
      planned.script = std::move(*answer);
    }
    plan.prompts.push_back(std::move(planned));
    if (options.echo) options.echoes.push_back(std::move(prompt.text));
  }

  Generation::Started started = Generation::start(call, std::move(plan));
  if (started.generation == nullptr) return openai_error(started.error);
  started.generation->set_renderer(
      std::make_unique<CompletionRenderer>(*started.generation, std::move(options)));
  return std::unique_ptr<Exchange>(std::move(started.generation));
}

}  // namespace invar::api
