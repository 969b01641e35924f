#include "api/chat_conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "api/chat_messages.h"
#include "api/generation.h"
#include "api/json_text.h"
#include "api/text_limits.h"
#include "base/quote.h"

namespace invar::api {
namespace {

void read_tools(const Fields& fields, bool offered, Conversation* out) {
  if (const json::array* functions = fields.array("functions"); functions != nullptr && !functions->empty())
    fields.fail("functions", "is the old form; write tools", "unsupported_parameter");
  if (const json::value* call = fields.find("function_call"); call != nullptr && *call != json::value("none"))
    fields.fail("function_call", "is the old form; write tool_choice", "unsupported_parameter");
  const json::array* tools = fields.array("tools");
  if (tools == nullptr || tools->empty()) return;
  if (tools->size() > kMaxTools)
    return fields.fail("tools",
                       fmt::format("has {} entries; at most {} are allowed", tools->size(), kMaxTools));
  const Path path = fields.at("tools");
  for (size_t i = 0; i < tools->size(); ++i) {
    const Path at(&path, i);
    const json::value& value = (*tools)[i];
    if (!value.is_object())
      return fields.sink().fail(at, fmt::format("must be an object, not {}", json_type_name(value)));
    const Fields tool(value.get_object(), at, fields.sink());
    std::string_view type, name, description;
    if (!tool.required_string("type", &type)) return;
    if (type != "function")
      return tool.fail("type", fmt::format("{} is not supported; only \"function\" is", quote(type)));
    const json::object* function = tool.object("function");
    if (function == nullptr) return tool.fail("function", "is missing; it must be an object");
    const Path function_path = tool.at("function");
    const Fields f(*function, function_path, fields.sink());
    if (!f.required_string("name", &name)) return;
    if (name.empty()) return f.fail("name", "is empty");
    f.string("description", &description);
    f.object("parameters");
  }
  if (offered) out->context["tools"] = *tools;
}

// False: no tool may be called.
bool read_tool_choice(const Fields& fields) {
  const json::value* choice = fields.find("tool_choice");
  if (choice == nullptr) return true;
  if (choice->is_string()) {
    const std::string_view word = view(choice->get_string());
    if (word == "auto") return true;
    if (word == "none") return false;
    if (word == "required") {
      fields.fail("tool_choice",
                  "this server cannot force a tool call yet; \"auto\" and \"none\" are supported",
                  "unsupported_value");
    } else {
      fields.fail("tool_choice",
                  fmt::format("{} is not one of \"auto\", \"none\", \"required\"", quote(word)));
    }
  } else if (choice->is_object()) {
    fields.fail("tool_choice",
                "this server cannot force a tool call yet; \"auto\" and \"none\" are supported",
                "unsupported_value");
  } else {
    fields.fail("tool_choice", fmt::format("must be a string or an object, not {}", json_type_name(*choice)));
  }
  return true;
}

bool is_identifier(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (name.empty() || name.size() > 64 || !letter(name[0])) return false;
  return std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

bool is_plain(const json::value& value) {
  if (value.is_array())
    return std::none_of(value.get_array().begin(), value.get_array().end(),
                        [](const json::value& v) { return v.is_structured(); });
  return !value.is_object();
}

// Names in a template that no request may replace.
constexpr std::string_view kReserved[] = {
    "messages", "tools",     "functions", "documents",    "add_generation_prompt", "continue_final_message",
    "range",    "namespace", "dict",      "strftime_now", "raise_exception",       "chat_template",
    "loop",     "self"};

// Variables for the template that a request brings.
void read_variables(const Fields& fields, Conversation* out) {
  std::string_view effort;
  if (fields.string("reasoning_effort", &effort))
    out->context["reasoning_effort"] = json::string_view(effort.data(), effort.size());
  const json::object* variables = fields.object("chat_template_kwargs");
  if (variables == nullptr) return;
  if (variables->size() > kMaxVariables)
    return fields.fail("chat_template_kwargs", fmt::format("has {} variables; at most {} are allowed",
                                                           variables->size(), kMaxVariables));
  const Path path = fields.at("chat_template_kwargs");
  for (const auto& [key, value] : *variables) {
    const std::string_view name(key.data(), key.size());
    const Path at(&path, name);
    if (!is_identifier(name)) return fields.sink().fail(at, "is not the name of a variable");
    if (name.ends_with("_token") ||
        std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved))
      return fields.sink().fail(at, "is a name that the server sets itself");
    if (!is_plain(value))
      return fields.sink().fail(at, "must be a string, number, boolean, null or an array of these");
    out->context[key] = value;
  }
}

}  // namespace

Conversation read_conversation(const Fields& fields) {
  Conversation out;
  const json::array* list = fields.array("messages");
  if (list == nullptr) {
    if (!fields.has("messages")) fields.fail("messages", "is missing; it must be an array of messages");
    return out;
  }
  if (list->empty()) fields.fail("messages", "is empty");
  json::array messages = read_messages(*list, fields.at("messages"), fields.sink());
  if (fields.sink().failed()) return out;
  const auto answers = std::count_if(messages.begin(), messages.end(), [](const json::value& message) {
    return message.get_object().at("role") == "assistant";
  });
  read_variables(fields, &out);
  out.context["messages"] = std::move(messages);
  read_tools(fields, read_tool_choice(fields), &out);

  const json::object& last = out.context["messages"].get_array().back().get_object();
  out.last_role = view(last.at("role").get_string());
  out.last_text = view(last.at("content").get_string());
  const bool can_continue = out.last_role == "assistant" && !last.contains("tool_calls");
  out.continue_final_message = can_continue;
  const bool said = fields.boolean("continue_final_message", &out.continue_final_message);
  if (out.continue_final_message && !can_continue)
    fields.fail("continue_final_message", "the last message is not one of the assistant that can go on");
  bool ask = !out.continue_final_message;
  fields.boolean("add_generation_prompt", &ask);
  if (ask && out.continue_final_message) {
    if (said) {
      fields.fail("add_generation_prompt", "contradicts continue_final_message");
    } else {
      out.continue_final_message = false;
    }
  }
  out.context["add_generation_prompt"] = ask;
  out.turn = 1 + int32_t(answers) - (out.continue_final_message ? 1 : 0);
  if (json::value* tools = out.context.if_contains("tools"))
    for (const json::value& tool : tools->get_array())
      out.tools.push_back(&tool.get_object().at("function").get_object());
  return out;
}

std::optional<text::Prompt> render_conversation(const Service& service, const Conversation& conversation,
                                                bool in_context, ErrorSink& sink) {
  constexpr const char* kField = "messages";
  const auto refuse = [&sink](Error error) {
    sink.fail_with(std::move(error));
    return std::nullopt;
  };
  if (in_context) {
    size_t contents = 0;
    for (const json::value& message : conversation.context.at("messages").get_array())
      contents += message.get_object().at("content").get_string().size();
    if (auto error = surely_too_long(service, contents, kField)) return refuse(std::move(*error));
  }
  if (auto error = too_much_text(service, text_bytes(conversation.context), kField))
    return refuse(std::move(*error));
  std::string context;
  append_json(context, conversation.context);
  auto text = text::chat_text(*service.text, context, text::template_clock(),
                              {.continue_final_message = conversation.continue_final_message});
  if (!text.ok()) return refuse(prompt_error(text.status(), kField));
  // A template may write its messages more than once.
  if (auto error = too_much_text(service, text->text.size(), kField)) return refuse(std::move(*error));
  if (in_context) {
    if (auto error = surely_too_long(service, text->text.size(), kField)) return refuse(std::move(*error));
  }
  auto prompt = text::chat_prompt(*service.text, context, std::move(*text));
  if (!prompt.ok()) return refuse(prompt_error(prompt.status(), kField));
  if (prompt->ids.empty())
    return refuse(prompt_error(invalid_argument("the conversation gives a prompt without tokens"), kField));
  return std::move(*prompt);
}

Error prompt_error(const Status& status, const char* field) {
  Error error = error_of(status);
  if (error.status < 500) {
    error.status = 400;
    error.code.clear();
  }
  error.param = field;
  return error;
}

ScriptQuestion question_of(const Conversation& conversation) {
  return {.turn = conversation.turn,
          .role = conversation.last_role,
          .text = conversation.last_text,
          .tools = conversation.tools};
}

}  // namespace invar::api
