// POST /v1/chat/completions.

#include <utility>

#include "api/chat_conversation.h"
#include "api/fields.h"
#include "api/generation.h"
#include "api/json_text.h"
#include "api/openai_error.h"
#include "api/openai_shapes.h"
#include "api/request_document.h"
#include "api/routes.h"

namespace invar::api {
namespace {

class ChatRenderer final : public Renderer {
 public:
  explicit ChatRenderer(const Generation& generation)
      : generation_(generation),
        head_(make_reply_head(generation.service(), "chatcmpl-")),
        chunk_("data: " + head_.opening("chat.completion.chunk") + R"(,"choices":[)"),
        chunk_end_(generation.plan().fields.include_usage ? R"(],"usage":null)" : "]"),
        messages_(generation.streaming() ? 0 : generation.choices().size()) {}

  void prompt_piece(int32_t, const text::TextPiece&) override {}

  void start(const Choice& choice, std::string& out) override {
    if (!generation_.streaming()) return;
    open_chunk(choice, out);
    out += R"({"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null})";
    out += chunk_end_;
    out += "}\n\n";
  }

  void piece(const Choice& choice, std::string& out) override {
    const text::TextPiece& piece = choice.piece;
    if (!generation_.streaming()) {
      Message& message = messages_[choice.index];
      message.content += piece.text;
      append_entries(message.logprobs, piece, message.logprobs.empty() ? '[' : ',');
      return;
    }
    open_chunk(choice, out);
    out += R"({"content":)";
    append_json_string(out, piece.text);
    out += R"(},"logprobs":)";
    if (piece.entries.empty()) {
      out += "null";
    } else {
      out += R"({"content":)";
      append_entries(out, piece, '[');
      out += R"(],"refusal":null})";
    }
    out += R"(,"finish_reason":null})";
    out += chunk_end_;
    out += "}\n\n";
  }

  void end(const Choice& choice, bool last, std::string& out) override {
    if (!generation_.streaming()) return;
    open_chunk(choice, out);
    out += R"({},"logprobs":null,"finish_reason":")";
    out += choice.finish_reason();
    out += "\"}";
    out += chunk_end_;
    const bool usage = generation_.plan().fields.include_usage;
    if (last && !usage) append_receipt(out);
    out += "}\n\n";
    if (!last) return;
    if (usage) {
      out += chunk_;
      out += R"(],"usage":)";
      append_usage(out, generation_.usage());
      append_receipt(out);
      out += "}\n\n";
    }
    out += "data: [DONE]\n\n";
  }

  Response body() override {
    Response response;
    std::string& out = response.body;
    out = head_.opening("chat.completion") + R"(,"choices":)";
    char before = '[';
    for (const Choice& choice : generation_.choices()) {
      const Message& message = messages_[choice.index];
      out += before;
      out += R"({"index":)";
      append_json_int(out, choice.index);
      out += R"(,"message":{"role":"assistant","content":)";
      append_json_string(out, message.content);
      out += R"(,"refusal":null},"logprobs":)";
      if (!generation_.plan().entries) {
        out += "null";
      } else {
        out += R"({"content":)";
        out += message.logprobs.empty() ? "[" : message.logprobs;
        out += R"(],"refusal":null})";
      }
      out += R"(,"finish_reason":")";
      out += choice.finish_reason();
      out += "\"}";
      before = ',';
    }
    out += R"(],"usage":)";
    append_usage(out, generation_.usage());
    append_receipt(out);
    out += '}';
    return response;
  }

  void error_frame(const Error& error, std::string& out) override { append_openai_error_frame(out, error); }

  Response error_body(const Error& error) override { return openai_error(error); }

 private:
  struct Message {
    std::string content;
    std::string logprobs;  // entries written down, "" or starting with '['
  };

  void open_chunk(const Choice& choice, std::string& out) {
    out += chunk_;
    out += R"({"index":)";
    append_json_int(out, choice.index);
    out += R"(,"delta":)";
  }

  static void append_entries(std::string& out, const text::TextPiece& piece, char before) {
    for (const text::LogprobEntry& entry : piece.entries) {
      out += before;
      append_chat_logprob(out, entry);
      before = ',';
    }
  }

  void append_receipt(std::string& out) {
    std::vector<std::vector<int32_t>> ids;
    for (const Choice& choice : generation_.choices())
      ids.push_back(choice.ids);
    append_receipt_member(out, generation_, ids);
  }

  const Generation& generation_;  // owns this
  const ReplyHead head_;
  const std::string chunk_, chunk_end_;
  std::vector<Message> messages_;
};

// "logprobs" and "top_logprobs" of the chat protocol.
void read_logprobs(const Fields& fields, GenerationPlan* plan) {
  fields.boolean("logprobs", &plan->entries);
  int64_t top = 0;
  const bool has_top = fields.integer("top_logprobs", 0, kMaxLogprobs, &top);
  if (has_top && !plan->entries)
    fields.fail("top_logprobs", "is only allowed together with \"logprobs\": true");
  if (plan->entries) plan->fields.sampling.logprobs = int32_t(top);
}

}  // namespace

Outcome post_chat_completions(const Call& call) {
  const Service& service = call.service;
  RequestDocument document(call.request.body);
  if (document.failed()) return openai_error(document.error());
  const Fields& fields = document.fields();
  check_model(fields, service);
  refuse_unsupported(fields);
  GenerationPlan plan;
  plan.fields = read_generation_fields(fields, service, 1);
  read_logprobs(fields, &plan);
  plan.choices = plan.fields.n;
  const Conversation conversation = read_conversation(fields);
  if (document.failed()) return openai_error(document.error());

  auto rendered = render_conversation(service, conversation, true, fields.sink());
  if (!rendered.has_value()) return openai_error(document.error());
  PlannedPrompt prompt{.ids = std::move(rendered->ids), .prefix = 0, .script = nullptr};
  if (service.script != nullptr) {
    auto answer = service.script->answer(question_of(conversation), *service.text);
    if (!answer.ok()) return openai_error(error_of(answer.status()));
    if ((*answer)->refusal.has_value()) return (*answer)->refused(openai_error);
    prompt.script = std::move(*answer);
  }
  plan.prompts.push_back(std::move(prompt));

  Generation::Started started = Generation::start(call, std::move(plan));
  if (started.generation == nullptr) return openai_error(started.error);
  started.generation->set_renderer(std::make_unique<ChatRenderer>(*started.generation));
  return std::unique_ptr<Exchange>(std::move(started.generation));
}

}  // namespace invar::api
