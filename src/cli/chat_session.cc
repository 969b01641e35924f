#include "cli/chat_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <limits>

#include "api/json_text.h"
#include "base/quote.h"
#include "sampling/numbers.h"

namespace invar {
namespace {

namespace json = boost::json;

const json::value* member(const json::value* value, const char* name) {
  return value != nullptr && value->is_object() ? value->get_object().if_contains(name) : nullptr;
}

std::string text_or_empty(const json::value* value) {
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
}

json::object message_of(const char* role, std::string_view content) {
  return {{"role", role}, {"content", json::string_view(content.data(), content.size())}};
}

}  // namespace

json::object generation_members(const GenerateRequest& settings, bool with_seed,
                                const std::vector<std::string>& said, const std::vector<std::string>& links) {
  const SamplingParams& s = settings.sampling;
  json::object out{{"max_tokens", settings.max_tokens}};
  for (const SamplingNumber& n : sampling_numbers()) {
    if (std::find(said.begin(), said.end(), n.name) == said.end()) continue;
    out[n.name] = n.whole() ? json::value(int64_t(n.get(s))) : json::value(n.get(s));
  }
  if (!links.empty()) out["samplers"] = json::array(links.begin(), links.end());
  if (with_seed) out["seed"] = s.seed;
  if (settings.ignore_eos) out["ignore_eos"] = true;
  if (!settings.stop_ids.empty()) {
    json::array ids;
    for (const int32_t id : settings.stop_ids)
      ids.emplace_back(id);
    out["stop_token_ids"] = std::move(ids);
  }
  if (!s.logit_bias.empty()) {
    json::object biases;
    for (const auto& [id, bias] : s.logit_bias)
      biases[std::to_string(id)] = bias;
    out["logit_bias"] = std::move(biases);
  }
  return out;
}

std::string ChatSession::request(std::string_view message) const {
  json::array messages;
  if (!system_.empty()) messages.push_back(message_of("system", system_));
  for (const Turn& turn : turns_) {
    messages.push_back(message_of("user", turn.message));
    messages.push_back(message_of("assistant", turn.answer));
  }
  messages.push_back(message_of("user", message));
  json::object body = members_;
  body["messages"] = std::move(messages);
  body["stream"] = true;
  body["stream_options"] = json::object{{"include_usage", true}};
  std::string out;
  api::append_json(out, body);
  return out;
}

void ChatSession::add_turn(std::string message, std::string answer) {
  turns_.push_back({std::move(message), std::move(answer)});
}

Status ChatAnswer::feed(std::string_view bytes, std::string& fresh) {
  return reader_.feed(bytes, [&](std::string_view data) { frame(data, fresh); });
}

void ChatAnswer::frame(std::string_view data, std::string& fresh) {
  const auto parsed = api::parse_json(data);
  if (!parsed.ok()) return;  // "[DONE]"
  const json::value* root = &*parsed;
  if (const json::value* error = member(root, "error"); error != nullptr && error->is_object()) {
    error_ = text_or_empty(member(error, "message"));
    if (error_.empty()) error_ = "the server reports an error without a message";
    return;
  }
  const json::value* tokens = member(member(root, "usage"), "completion_tokens");
  if (tokens != nullptr && tokens->is_int64()) tokens_ = tokens->get_int64();
  const json::value* choices = member(root, "choices");
  if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return;
  const json::value* choice = &choices->get_array()[0];
  const std::string piece = text_or_empty(member(member(choice, "delta"), "content"));
  text_ += piece;
  fresh += piece;
  if (const std::string reason = text_or_empty(member(choice, "finish_reason")); !reason.empty())
    finish_reason_ = reason;
}

ApiErrorText api_error(int status, std::string_view body) {
  const auto parsed = api::parse_json(body);
  const json::value* error = parsed.ok() ? member(&*parsed, "error") : nullptr;
  ApiErrorText out{text_or_empty(member(error, "message")), text_or_empty(member(error, "code"))};
  if (out.message.empty())
    out.message = body.empty() ? fmt::format("the server answered with status {} and nothing else", status)
                               : fmt::format("the server answered with status {}: {}", status, body);
  return out;
}

std::string answer_for_terminal(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t plain = std::min(text.find_first_of("\n\t"), text.size());
    out += printable_within(text.substr(0, plain), std::numeric_limits<size_t>::max());
    if (plain < text.size()) out += text[plain];
    text.remove_prefix(std::min(plain + 1, text.size()));
  }
  return out;
}

}  // namespace invar
