#include "api/openai_shapes.h"

#include <fmt/format.h>

#include <ctime>

#include "api/json_text.h"
#include "api/receipt.h"
#include "base/utf8.h"

namespace invar::api {
namespace {

int64_t count_characters(std::string_view text) {
  int64_t n = 0;
  for (const char c : text)
    n += (uint8_t(c) & 0xC0) != 0x80;
  return n;
}

// A token's text; bytes that are no text by themselves as "bytes:\xf0\x9f".
std::string completion_token(const text::LogprobEntry::Token& token) {
  if (is_utf8(token.bytes)) return token.bytes.empty() ? token.text : token.bytes;
  std::string out = "bytes:";
  for (const char c : token.bytes)
    fmt::format_to(std::back_inserter(out), "\\x{:02x}", uint8_t(c));
  return out;
}

void append_chat_token(std::string& out, const text::LogprobEntry::Token& token) {
  out += R"({"id":)";
  append_json_int(out, token.id);
  out += R"(,"token":)";
  append_json_string(out, token.text);
  out += R"(,"logprob":)";
  append_json_float(out, token.logprob);
  out += R"(,"bytes":)";
  append_json_bytes(out, token.bytes);
}

char separator(const std::string& list) {
  return list.empty() ? '[' : ',';
}

}  // namespace

void append_usage(std::string& out, const Usage& usage) {
  fmt::format_to(std::back_inserter(out),
                 R"({{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},)"
                 R"("prompt_tokens_details":{{"cached_tokens":{}}}}})",
                 usage.prompt_tokens, usage.completion_tokens, usage.prompt_tokens + usage.completion_tokens,
                 usage.cached_tokens);
}

std::string ReplyHead::opening(const char* object) const {
  std::string out = fmt::format(R"({{"id":"{}","object":"{}","created":{},"model":)", id, object, created);
  append_json_string(out, model);
  out += R"(,"system_fingerprint":)";
  append_json_string(out, fingerprint);
  return out;
}

ReplyHead make_reply_head(const Service& service, const char* id_prefix) {
  return {.id = random_id(id_prefix),
          .model = service.model_names.empty() ? std::string() : service.model_names[0],
          .fingerprint = service.fingerprint,
          .created = int64_t(std::time(nullptr))};
}

void append_receipt_member(std::string& out, const Generation& generation,
                           std::span<const std::vector<int32_t>> ids) {
  out += R"(,"invar":)";
  append_receipt(out, generation.service(), generation.plan().fields.seed, output_digest(ids));
}

void append_chat_logprob(std::string& out, const text::LogprobEntry& entry) {
  append_chat_token(out, entry.token);
  out += R"(,"top_logprobs":)";
  char before = '[';
  for (const text::LogprobEntry::Token& token : entry.alternatives) {
    out += before;
    append_chat_token(out, token);
    out += '}';
    before = ',';
  }
  out += before == '[' ? "[]}" : "]}";
}

void CompletionLogprobs::add(const text::LogprobEntry& entry, Place place, bool alternatives) {
  const std::string name = completion_token(entry.token);
  tokens_ += separator(tokens_);
  append_json_string(tokens_, name);

  token_logprobs_ += separator(token_logprobs_);
  top_logprobs_ += separator(top_logprobs_);
  if (place == Place::kFirst) {
    token_logprobs_ += "null";
    top_logprobs_ += "null";
  } else {
    append_json_float(token_logprobs_, entry.token.logprob);
    top_logprobs_ += '{';
    append_json_string(top_logprobs_, name);
    top_logprobs_ += ':';
    append_json_float(top_logprobs_, entry.token.logprob);
    for (const text::LogprobEntry::Token& token : entry.alternatives) {
      if (!alternatives) break;
      const std::string other = completion_token(token);
      // Keys of an object are unique; of tokens with one text the chosen or likelier one stays.
      if (token.id == entry.token.id || other == name) continue;
      top_logprobs_ += ',';
      append_json_string(top_logprobs_, other);
      top_logprobs_ += ':';
      append_json_float(top_logprobs_, token.logprob);
    }
    top_logprobs_ += '}';
  }

  text_offset_ += separator(text_offset_);
  const std::string& bytes = entry.token.bytes;
  const bool inside = !bytes.empty() && (uint8_t(bytes[0]) & 0xC0) == 0x80;
  append_json_int(text_offset_, inside ? characters_ - 1 : characters_);
  characters_ += count_characters(bytes);
}

void CompletionLogprobs::skip(std::string_view text) {
  characters_ += count_characters(text);
}

void CompletionLogprobs::append_and_clear(std::string& out) {
  if (tokens_.empty()) {
    out += R"({"tokens":[],"token_logprobs":[],"top_logprobs":[],"text_offset":[]})";
    return;
  }
  out += R"({"tokens":)" + tokens_ + R"(],"token_logprobs":)" + token_logprobs_ + R"(],"top_logprobs":)" +
         top_logprobs_ + R"(],"text_offset":)" + text_offset_ + "]}";
  tokens_.clear();
  token_logprobs_.clear();
  top_logprobs_.clear();
  text_offset_.clear();
}

}  // namespace invar::api
