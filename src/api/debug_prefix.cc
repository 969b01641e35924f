// GET /debug/prefix: why the latest prompts of whoever asks were not found further than they were.

#include "api/json_text.h"
#include "api/prefix_log.h"
#include "api/routes.h"
#include "api/service.h"

namespace invar::api {
namespace {

const char* explanation(const PrefixLookup& lookup) {
  switch (lookup.end) {
    case PrefixEnd::kComplete:
      return "found as far as possible: the last token is computed for what follows it";
    case PrefixEnd::kOff:
      return "the prefix cache is off, or the request wanted the scores of its prompt";
    case PrefixEnd::kNew:
      return "nothing that begins like this prompt is known";
    case PrefixEnd::kDiffers:
      return lookup.known_token < 0 ? "the nearest known prompt or answer ends there"
                                    : "the nearest known prompt or answer has another token there";
    case PrefixEnd::kEvicted:
      return "it was known, and its pages were given up for other requests; more --memory keeps more, unless "
             "--prefix-cache bounds them";
    case PrefixEnd::kOtherSalt:
      return "it is known under another cache_salt only";
    case PrefixEnd::kExpired:
      return "it is known, but the model's sliding window has let go of what is needed to go on there";
    case PrefixEnd::kNoRoom:
      return "there was no free page for a copy of the last, partly equal page";
  }
  return "";
}

void append_token(std::string& out, const char* name, int32_t id, const text::Tokenizer& tokenizer) {
  out += ",\"";
  out += name;
  if (id < 0) {
    out += "\":null";
    return;
  }
  out += R"(":{"id":)";
  append_json_int(out, id);
  out += R"(,"text":)";
  append_json_string(out, tokenizer.token_bytes(id));
  out += '}';
}

void append_entry(std::string& out, const PrefixLog::Entry& entry, const text::Tokenizer& tokenizer) {
  const auto number = [&](const char* name, int64_t value) {
    out += name;
    append_json_int(out, value);
  };
  out += R"({"request":)";
  append_json_string(out, entry.request);
  number(R"(,"prompt_tokens":)", entry.prompt_tokens);
  number(R"(,"cached_tokens":)", entry.reuse.cached_tokens);
  out += R"(,"end":)";
  append_json_string(out, prefix_end_name(entry.reuse.lookup.end));
  number(R"(,"position":)", entry.reuse.end_position);
  append_token(out, "token", entry.token, tokenizer);
  append_token(out, "known_token", entry.reuse.lookup.known_token, tokenizer);
  out += R"(,"explanation":)";
  append_json_string(out, explanation(entry.reuse.lookup));
  out += '}';
}

}  // namespace

Outcome get_debug_prefix(const Call& call) {
  Response response;
  std::string& out = response.body;
  out = R"({"object":"list","data":)";
  char before = '[';
  for (const PrefixLog::Entry& entry : call.service.prefix_log->of_tenant(call.request.tenant)) {
    out += before;
    append_entry(out, entry, *call.service.text->tokenizer);
    before = ',';
  }
  out += before == '[' ? "[]}" : "]}";
  return response;
}

}  // namespace invar::api
