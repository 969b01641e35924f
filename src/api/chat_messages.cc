#include "api/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "api/json_text.h"
#include "base/quote.h"

namespace invar::api {
namespace {

// A call of a tool that no message has answered yet.
struct OpenCall {
  std::string_view id, name;
};

class Messages {
 public:
  explicit Messages(ErrorSink& sink) : sink_(sink) {}

  void read(const json::array& list, const Path& path) {
    for (size_t i = 0; i < list.size() && !sink_.failed(); ++i) {
      const Path at(&path, i);
      if (!list[i].is_object())
        return sink_.fail(at, fmt::format("must be an object, not {}", json_type_name(list[i])));
      read_message(Fields(list[i].get_object(), at, sink_));
    }
    if (!open_.empty())
      sink_.fail(path, fmt::format("the tool call {} has no message of the role \"tool\" that answers it",
                                   quote(open_.front().id)));
  }

  json::array take() { return std::move(out_); }

 private:
  void read_message(const Fields& m) {
    std::string_view role;
    if (!m.required_string("role", &role)) return;
    if (!open_.empty() && role != "tool")
      return m.fail("role",
                    fmt::format("the tool call {} must be answered by a message of the role \"tool\" first",
                                quote(open_.front().id)));
    json::object out;
    if (role == "system" || role == "developer") {
      out["role"] = "system";
      put_content(m, out);
    } else if (role == "user") {
      out["role"] = "user";
      put_content(m, out);
    } else if (role == "assistant") {
      out["role"] = "assistant";
      read_assistant(m, out);
    } else if (role == "tool") {
      out["role"] = "tool";
      read_tool_result(m, out);
    } else {
      return m.fail(
          "role",
          fmt::format("{} is not a role; known are system, developer, user, assistant, tool", quote(role)));
    }
    std::string_view name;
    if (m.string("name", &name)) out["name"] = json::string_view(name.data(), name.size());
    out_.push_back(std::move(out));
  }

  void put_content(const Fields& m, json::object& out) {
    std::string text;
    if (!read_content(m, false, &text))
      m.fail("content", "is missing; it must be a string or an array of text parts");
    out["content"] = text;
  }

  // False: there is none.
  bool read_content(const Fields& m, bool of_assistant, std::string* text) {
    const json::value* content = m.find("content");
    if (content == nullptr) return false;
    if (content->is_string()) {
      *text = view(content->get_string());
      return true;
    }
    if (!content->is_array()) {
      m.fail("content",
             fmt::format("must be a string or an array of parts, not {}", json_type_name(*content)));
      return true;
    }
    const json::array& parts = content->get_array();
    if (parts.empty() && !of_assistant) m.fail("content", "has no parts");
    const Path path = m.at("content");
    for (size_t i = 0; i < parts.size() && !sink_.failed(); ++i) {
      const Path at(&path, i);
      if (!parts[i].is_object()) {
        sink_.fail(at, fmt::format("must be an object, not {}", json_type_name(parts[i])));
        break;
      }
      if (i > 0) *text += '\n';
      read_part(Fields(parts[i].get_object(), at, sink_), of_assistant, text);
    }
    return true;
  }

  void read_part(const Fields& part, bool of_assistant, std::string* text) {
    std::string_view type, piece;
    if (!part.required_string("type", &type)) return;
    if (type == "text") {
      if (part.required_string("text", &piece)) *text += piece;
    } else if (type == "refusal" && of_assistant) {
      if (part.required_string("refusal", &piece)) *text += piece;
    } else if (type == "image_url" || type == "input_audio" || type == "audio_url" || type == "video_url" ||
               type == "image" || type == "file") {
      part.fail("type", fmt::format("the served model takes text only, no part of the type {}", quote(type)),
                "unsupported_content");
    } else {
      part.fail("type", fmt::format("{} is not a type of part; known is \"text\"", quote(type)));
    }
  }

  void read_assistant(const Fields& m, json::object& out) {
    std::string text;
    bool says = read_content(m, true, &text);
    std::string_view words;
    if (m.string("refusal", &words) && !says) {
      text = words;
      says = true;
    }
    for (const char* key : {"reasoning_content", "reasoning"}) {
      if (!m.string(key, &words)) continue;
      out["reasoning_content"] = json::string_view(words.data(), words.size());
      says = true;
      break;
    }
    if (m.has("function_call"))
      m.fail("function_call", "is the old form; write tool_calls", "unsupported_parameter");
    const json::array* calls = m.array("tool_calls");
    if (calls != nullptr && !calls->empty()) {
      says = true;
      if (calls->size() > kMaxToolCalls)
        return m.fail("tool_calls",
                      fmt::format("has {} entries; at most {} are allowed", calls->size(), kMaxToolCalls));
      json::array list;
      const Path path = m.at("tool_calls");
      for (size_t i = 0; i < calls->size() && !sink_.failed(); ++i)
        read_call((*calls)[i], {&path, i}, list);
      out["tool_calls"] = std::move(list);
    }
    if (!says) m.fail("content", "is missing; an assistant message has content or tool_calls");
    out["content"] = text;
  }

  void read_call(const json::value& value, const Path& path, json::array& out) {
    if (!value.is_object())
      return sink_.fail(path, fmt::format("must be an object, not {}", json_type_name(value)));
    const Fields call(value.get_object(), path, sink_);
    std::string_view id, type = "function", name;
    if (!call.required_string("id", &id)) return;
    call.string("type", &type);
    if (type != "function")
      return call.fail("type", fmt::format("{} is not supported; only \"function\" is", quote(type)));
    const json::object* function = call.object("function");
    if (function == nullptr) return call.fail("function", "is missing; it must be an object");
    const Path function_path = call.at("function");
    const Fields f(*function, function_path, sink_);
    if (!f.required_string("name", &name)) return;
    for (const OpenCall& other : open_)
      if (other.id == id) return call.fail("id", fmt::format("{} occurs twice", quote(id)));
    open_.push_back({id, name});
    json::object call_out;
    call_out["id"] = json::string_view(id.data(), id.size());
    call_out["type"] = "function";
    call_out["function"] = json::object(
        {{"name", json::string_view(name.data(), name.size())}, {"arguments", read_arguments(f)}});
    out.push_back(std::move(call_out));
  }

  // Clients send the arguments as a string of JSON; templates want the object.
  json::value read_arguments(const Fields& f) {
    const json::value* value = f.find("arguments");
    if (value == nullptr) return json::object();
    if (value->is_object()) return *value;
    std::string_view text;
    if (!f.string("arguments", &text)) return nullptr;
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return json::object();
    auto arguments = parse_json(text, {.depth = 32, .values = 100'000});
    if (!arguments.ok() || !arguments->is_object()) {
      f.fail("arguments", fmt::format("{} is not a JSON object", quote(text)));
      return nullptr;
    }
    return std::move(*arguments);
  }

  void read_tool_result(const Fields& m, json::object& out) {
    std::string_view id;
    if (!m.required_string("tool_call_id", &id)) return;
    const auto call = std::find_if(open_.begin(), open_.end(), [&](const OpenCall& c) { return c.id == id; });
    if (call == open_.end())
      return m.fail("tool_call_id",
                    fmt::format("{} answers no tool call of the assistant message before it", quote(id)));
    out["tool_call_id"] = json::string_view(id.data(), id.size());
    out["name"] = json::string_view(call->name.data(), call->name.size());
    open_.erase(call);
    put_content(m, out);
  }

  ErrorSink& sink_;
  json::array out_;
  std::vector<OpenCall> open_;
};

}  // namespace

json::array read_messages(const json::array& list, const Path& path, ErrorSink& sink) {
  Messages messages(sink);
  messages.read(list, path);
  return messages.take();
}

}  // namespace invar::api
