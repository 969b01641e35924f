// POST /tokenize, /detokenize, /apply-template: text to ids and back, with the names that clients of other
// servers use for the fields.

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "api/chat_conversation.h"
#include "api/json_text.h"
#include "api/openai_error.h"
#include "api/request_document.h"
#include "api/routes.h"
#include "api/sampling_fields.h"
#include "api/text_limits.h"
#include "base/utf8.h"
#include "text/detokenizer.h"

namespace invar::api {
namespace {

// The bytes of a token: a string where they are text, else numbers.
void append_piece(std::string& out, std::string_view bytes) {
  if (is_utf8(bytes)) {
    append_json_string(out, bytes);
  } else {
    append_json_bytes(out, bytes);
  }
}

Result<std::vector<int32_t>> encode_text(const Service& service, std::string_view text, bool add_special,
                                         bool parse_special) {
  const text::Tokenizer& tokenizer = *service.text->tokenizer;
  ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                   tokenizer.encode(text, parse_special ? text::Special::kParse : text::Special::kPlain));
  if (add_special) ids.insert(ids.begin(), tokenizer.prefix().begin(), tokenizer.prefix().end());
  return ids;
}

void check_text(const Fields& fields, const char* field, size_t bytes, const Service& service) {
  if (auto error = too_much_text(service, bytes, field)) fields.sink().fail_with(std::move(*error));
}

void check_ids(const Fields& fields, const char* field, size_t ids, const Service& service) {
  if (ids > service.max_token_ids)
    fields.fail(field,
                fmt::format("has more tokens than the {} that are allowed here", service.max_token_ids));
}

// Nothing: the sink knows why.
std::optional<text::Prompt> read_conversation_prompt(const Fields& fields, const Service& service) {
  if (fields.has("chat_template")) refuse_unsupported(fields);
  const Conversation conversation = read_conversation(fields);
  if (fields.sink().failed()) return std::nullopt;
  return render_conversation(service, conversation, false, fields.sink());
}

}  // namespace

Outcome post_tokenize(const Call& call) {
  const Service& service = call.service;
  RequestDocument document(call.request.body);
  if (document.failed()) return openai_error(document.error());
  const Fields& fields = document.fields();
  check_model(fields, service);
  // "content" comes from clients that expect the bare text's ids, "prompt" from those that expect a prompt's.
  std::string_view text;
  const bool content = fields.string("content", &text);
  const bool prompt = !content && fields.string("prompt", &text);
  const bool messages = fields.has("messages");
  bool add_special = prompt, parse_special = true, with_pieces = false, with_strings = false;
  fields.boolean("add_special_tokens", &add_special);
  fields.boolean("add_special", &add_special);
  fields.boolean("parse_special", &parse_special);
  fields.boolean("with_pieces", &with_pieces);
  fields.boolean("return_token_strs", &with_strings);
  if (!content && !prompt && !messages)
    fields.fail("content", "is missing; send content, prompt or messages");
  const char* field = content ? "content" : prompt ? "prompt" : "messages";
  check_text(fields, field, text.size(), service);
  if (document.failed()) return openai_error(document.error());

  std::vector<int32_t> ids;
  if (content || prompt) {
    auto encoded = encode_text(service, text, add_special, parse_special);
    if (!encoded.ok()) return openai_error(prompt_error(encoded.status(), field));
    ids = std::move(*encoded);
  } else {
    auto rendered = read_conversation_prompt(fields, service);
    if (!rendered.has_value()) return openai_error(document.error());
    ids = std::move(rendered->ids);
  }
  check_ids(fields, field, ids.size(), service);
  if (document.failed()) return openai_error(document.error());

  const text::Tokenizer& tokenizer = *service.text->tokenizer;
  Response response;
  std::string& out = response.body;
  out = R"({"tokens":)";
  char before = '[';
  for (const int32_t id : ids) {
    out += before;
    if (with_pieces) {
      out += R"({"id":)";
      append_json_int(out, id);
      out += R"(,"piece":)";
      append_piece(out, tokenizer.token_bytes(id));
      out += '}';
    } else {
      append_json_int(out, id);
    }
    before = ',';
  }
  out += before == '[' ? "[]" : "]";
  if (with_strings) {
    out += R"(,"token_strs":)";
    before = '[';
    for (const int32_t id : ids) {
      out += before;
      append_json_string(out, tokenizer.token_bytes(id));
      before = ',';
    }
    out += before == '[' ? "[]" : "]";
  }
  fmt::format_to(std::back_inserter(out), R"(,"count":{},"max_model_len":{}}})", ids.size(), service.context);
  return response;
}

Outcome post_detokenize(const Call& call) {
  const Service& service = call.service;
  RequestDocument document(call.request.body);
  if (document.failed()) return openai_error(document.error());
  const Fields& fields = document.fields();
  check_model(fields, service);
  const json::array* tokens = fields.array("tokens");
  if (tokens == nullptr)
    fields.fail("tokens", "is missing; it must be an array of token ids");
  else
    check_ids(fields, "tokens", tokens->size(), service);
  text::Detokenizer detokenizer(service.text->tokenizer, {.skip_control = false, .at_text_start = true});
  std::string text;
  if (tokens != nullptr) {
    const Path path = fields.at("tokens");
    for (size_t i = 0; i < tokens->size() && !document.failed(); ++i) {
      int32_t id = 0;
      if (read_token_id((*tokens)[i], {&path, i}, fields.sink(), service.vocab, &id))
        detokenizer.push(id, text);
      check_text(fields, "tokens", text.size(), service);
    }
    detokenizer.finish(text);
  }
  if (document.failed()) return openai_error(document.error());
  Response response;
  response.body = R"({"content":)";
  append_json_string(response.body, text);
  response.body += R"(,"prompt":)";
  append_json_string(response.body, text);
  response.body += '}';
  return response;
}

Outcome post_apply_template(const Call& call) {
  const Service& service = call.service;
  RequestDocument document(call.request.body);
  if (document.failed()) return openai_error(document.error());
  const Fields& fields = document.fields();
  check_model(fields, service);
  const auto rendered = read_conversation_prompt(fields, service);
  if (!rendered.has_value()) return openai_error(document.error());
  Response response;
  response.body = R"({"prompt":)";
  append_json_string(response.body, rendered->text);
  response.body += '}';
  return response;
}

}  // namespace invar::api
