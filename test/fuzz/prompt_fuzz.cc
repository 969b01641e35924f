// libFuzzer target: whatever a conversation says, its prompt has the control tokens that its template writes
// and no others, or it is refused. The first byte chooses the template; each line of the rest is a part of
// the user's message. layers: text api

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/testing/tiny_model.h"
#include "base/check.h"
#include "base/utf8.h"
#include "text/prompt.h"

namespace {

using namespace invar;
using namespace invar::text;

// Templates that write the same control tokens for every message, but cut, join and change its text.
constexpr const char* kParts[] = {
    "{{ p.text }}",
    "{{ p.text | trim }}",
    "{{ p.text | replace('x', '') }}",
    "{{ p.text | replace('x', '|') | lower }}",
    "{{ p | tojson }}",
    "{{ p.text[1:] }}{{ p.text[:1] }}",
    "{{ p.text.split('x') | join('') }}",
    "{{ '|' ~ p.text ~ 'im_end' }}",
    "{% if '<|' in p.text %}{{ p.text.split('<|')[-1] }}{% else %}{{ p.text }}{% endif %}",
    "{{ p.text | reverse }}",
};

struct Subject {
  TextModel model;
  std::vector<int32_t> control;  // of any conversation
};

std::vector<int32_t> control_of(const TextModel& model, const std::vector<int32_t>& ids) {
  std::vector<int32_t> control;
  for (const int32_t id : ids)
    if (model.tokenizer->is_control(id)) control.push_back(id);
  return control;
}

std::string context(std::string_view lines) {
  boost::json::array parts;
  while (true) {
    const size_t end = lines.find('\n');
    parts.push_back({{"type", "text"}, {"text", lines.substr(0, end)}});
    if (end == lines.npos) break;
    lines.remove_prefix(end + 1);
  }
  return boost::json::serialize(boost::json::object{{"messages", {{{"role", "user"}, {"content", parts}}}},
                                                    {"add_generation_prompt", true}});
}

const std::vector<Subject>& subjects() {
  static const auto* all = [] {
    auto* made = new std::vector<Subject>;
    for (const char* part : kParts) {
      TextModelParts parts;
      parts.tokenizer = api::make_tiny_model(false)->tokenizer;
      parts.templates = {{"default", "{% for m in messages %}<|im_start|>{% for p in m.content %}" +
                                         std::string(part) +
                                         "{% endfor %}<|im_end|>{% endfor %}<|im_start|>"}};
      Subject s{make_text_model(std::move(parts)), {}};
      CHECK(s.model.chat_template != nullptr);
      const auto plain = chat_prompt(s.model, context("a"), 0);
      CHECK(plain.ok());
      s.control = control_of(s.model, plain->ids);
      CHECK(s.control.size() == 3);
      made->push_back(std::move(s));
    }
    return made;
  }();
  return *all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view lines(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (!is_utf8(lines)) return 0;
  const Subject& subject = subjects()[data[0] % std::size(kParts)];
  const auto prompt = chat_prompt(subject.model, context(lines), 0);
  if (!prompt.ok()) {
    CHECK(prompt.status().code() != Code::kInternal);
    return 0;
  }
  CHECK(control_of(subject.model, prompt->ids) == subject.control);
  std::string text;
  for (const int32_t id : prompt->ids)
    text += subject.model.tokenizer->token_bytes(id);
  CHECK(text == prompt->text);
  return 0;
}
