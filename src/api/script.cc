#include "api/script.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/fields.h"
#include "api/json_text.h"
#include "api/script_rule.h"
#include "base/quote.h"

namespace invar::api {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;

std::string_view name_of(const json::object& function) {
  const json::value* name = function.if_contains("name");
  return name != nullptr && name->is_string() ? view(name->get_string()) : std::string_view();
}

const json::object* offered(const ScriptQuestion& question, std::string_view name) {
  for (const json::object* tool : question.tools)
    if (name_of(*tool) == name) return tool;
  return nullptr;
}

Result<bool> applies(const ScriptRule& rule, const ScriptQuestion& question) {
  if (rule.turn.has_value() && *rule.turn != question.turn) return false;
  if (rule.role.has_value() && *rule.role != question.role) return false;
  if (rule.equals.has_value() && *rule.equals != question.text) return false;
  if (rule.contains.has_value() && question.text.find(*rule.contains) == std::string_view::npos) return false;
  if (rule.any_tools.has_value() && *rule.any_tools == question.tools.empty()) return false;
  if (rule.needs_tool && question.tools.empty()) return false;
  for (const std::string& name : rule.tools)
    if (offered(question, name) == nullptr) return false;
  if (!rule.matches.has_value()) return true;
  try {
    return boost::regex_search(question.text.begin(), question.text.end(), *rule.matches);
  } catch (const std::exception& e) {
    return invalid_argument(fmt::format("matches: {}", e.what()));
  }
}

struct Said {
  std::string text;
  std::vector<bool> foreign;  // [text.size()], true for bytes from the request

  void append(std::string_view more, bool from_request) {
    text += more;
    foreign.resize(text.size(), from_request);
  }
};

struct Variables {
  std::string tool, arguments;
  std::string_view last;

  // One pass: what is put in is not looked at again.
  Said put_into(std::string_view text) const {
    Said out;
    while (!text.empty()) {
      const size_t at = std::min(text.find("{{"), text.size());
      out.append(text.substr(0, at), false);
      text.remove_prefix(at);
      if (take("{{tool}}", tool, &text, &out) || take("{{arguments}}", arguments, &text, &out) ||
          take("{{last}}", last, &text, &out) || text.empty())
        continue;
      out.append(text.substr(0, 1), false);
      text.remove_prefix(1);
    }
    return out;
  }

 private:
  static bool take(std::string_view name, std::string_view value, std::string_view* text, Said* out) {
    if (!text->starts_with(name)) return false;
    out->append(value, true);
    text->remove_prefix(name.size());
    return true;
  }
};

Variables variables_of(const ScriptRule& rule, const ScriptQuestion& question) {
  Variables out;
  out.last = question.text;
  if (question.tools.empty()) return out;
  const json::object* tool = rule.tools.empty() ? question.tools[0] : offered(question, rule.tools[0]);
  out.tool = name_of(*tool);
  append_json(out.arguments, sample_arguments(*tool));
  return out;
}

// The ids of a text that goes on after another one. Vocabularies that write a blank in front of every text do
// not get one here.
Result<std::vector<int32_t>> encode_in_the_middle(const text::TextModel& model, const Said& said) {
  const text::Tokenizer& tokenizer = *model.tokenizer;
  if (tokenizer.strip_start() > 0) {
    Said after_line_end;
    after_line_end.append("\n", false);
    after_line_end.text += said.text;
    after_line_end.foreign.insert(after_line_end.foreign.end(), said.foreign.begin(), said.foreign.end());
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                     model.control->encode(tokenizer, after_line_end.text, after_line_end.foreign));
    std::string before;
    for (size_t i = 0; i < ids.size() && before.size() < 3; ++i) {
      before += tokenizer.token_bytes(ids[i]);
      if (before == "\n" || before == " \n")
        return std::vector<int32_t>(ids.begin() + ptrdiff_t(i) + 1, ids.end());
    }
  }
  return model.control->encode(tokenizer, said.text, said.foreign);
}

Result<std::shared_ptr<const ScriptedAnswer>> answer_of(const ScriptRule& rule,
                                                        const ScriptQuestion& question,
                                                        const text::TextModel& model) {
  auto answer = std::make_shared<ScriptedAnswer>();
  answer->length = rule.length;
  answer->refusal = rule.refusal;
  answer->retry_after_s = rule.retry_after_s;
  const Variables variables = variables_of(rule, question);
  for (const ScriptRule::Group& group : rule.groups) {
    std::vector<int32_t> tokens = group.tokens;
    if (tokens.empty()) {
      ASSIGN_OR_RETURN(tokens, encode_in_the_middle(model, variables.put_into(group.text)));
    }
    const int64_t cost_ns = (group.cost_ms >= 0 ? group.cost_ms : rule.group_ms) * kNsPerMs;
    if (rule.split) {
      for (const int32_t id : tokens)
        answer->groups.push_back({{id}, cost_ns});
    } else {
      answer->groups.push_back({std::move(tokens), cost_ns});
    }
  }
  if (rule.fault.has_value()) {
    answer->fault = *rule.fault;
    answer->abrupt = rule.abrupt;
    answer->fault_after = 0;
    for (size_t i = 0; i < answer->groups.size() && int64_t(i) < rule.fault_after_groups; ++i)
      answer->fault_after += int64_t(answer->groups[i].tokens.size());
  }
  std::erase_if(answer->groups, [](const ScriptedAnswer::Group& group) { return group.tokens.empty(); });
  if (!answer->groups.empty()) answer->groups[0].cost_ns += rule.first_ms * kNsPerMs;
  return std::shared_ptr<const ScriptedAnswer>(std::move(answer));
}

}  // namespace

int64_t ScriptedAnswer::token_count() const {
  int64_t n = 0;
  for (const Group& group : groups)
    n += int64_t(group.tokens.size());
  return n;
}

Response ScriptedAnswer::refused(Response (*shape)(const Error&)) const {
  Response response = shape(*refusal);
  if (retry_after_s >= 0) response.headers.emplace_back("Retry-After", fmt::format("{}", retry_after_s));
  return response;
}

Script::Script() = default;
Script::~Script() = default;

Result<std::unique_ptr<const Script>> Script::parse(std::string_view text, int32_t vocab) {
  auto document = parse_json(text);
  if (!document.ok()) return invalid_argument("not valid JSON: " + document.status().message());
  if (!document->is_object()) return invalid_argument("must be a JSON object with the key \"rules\"");
  const Path root;
  ErrorSink sink;
  const Fields fields(document->get_object(), root, sink);
  std::unique_ptr<Script> script(new Script());
  const json::array* rules = fields.array("rules");
  if (rules == nullptr) fields.fail("rules", "is missing; it must be an array");
  const Path path = fields.at("rules");
  for (size_t i = 0; rules != nullptr && i < rules->size() && !sink.failed(); ++i) {
    const Path at(&path, i);
    if (!(*rules)[i].is_object()) {
      sink.fail(at, "must be an object");
      break;
    }
    auto rule = std::make_unique<ScriptRule>();
    read_script_rule(Fields((*rules)[i].get_object(), at, sink), vocab, rule.get());
    script->rules_.push_back(std::move(rule));
  }
  if (sink.failed()) return invalid_argument(sink.error().message);
  return std::unique_ptr<const Script>(std::move(script));
}

Result<std::shared_ptr<const ScriptedAnswer>> Script::answer(const ScriptQuestion& question,
                                                             const text::TextModel& model) const {
  for (size_t i = 0; i < rules_.size(); ++i) {
    auto hit = applies(*rules_[i], question);
    if (!hit.ok()) return hit.status().with_context(fmt::format("rules[{}]", i));
    if (!*hit) continue;
    auto answer = answer_of(*rules_[i], question, model);
    if (!answer.ok()) return answer.status().with_context(fmt::format("rules[{}]", i));
    return answer;
  }
  return invalid_argument(
      fmt::format("no rule of the script matches (turn {}, last message of the role {}: {}, {} tools)",
                  question.turn, quote(question.role), quote(question.text), question.tools.size()));
}

}  // namespace invar::api
