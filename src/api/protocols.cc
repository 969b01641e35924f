#include <algorithm>

#include "api/openai_error.h"
#include "api/protocol.h"
#include "api/routes.h"

namespace invar::api {
namespace {

constexpr Route kOpenAiRoutes[] = {
    {"POST", "/v1/chat/completions", post_chat_completions},
    {"POST", "/v1/completions", post_completions},
    {"GET", "/v1/models", get_models},
    {"GET", "/v1/models/{id}", get_model},
    {"POST", "/tokenize", post_tokenize},
    {"POST", "/detokenize", post_detokenize},
    {"POST", "/apply-template", post_apply_template},
    {"GET", "/debug/prefix", get_debug_prefix},
};

constexpr Protocol kProtocols[] = {
    {"openai", kOpenAiRoutes, openai_error},
};

constexpr std::string_view kParameter = "{id}";

// Whether `path` is that of the route; then *parameter is what stands for its parameter.
bool matches(std::string_view pattern, std::string_view path, std::string* parameter) {
  if (!pattern.ends_with(kParameter)) return pattern == path;
  pattern.remove_suffix(kParameter.size());
  if (!path.starts_with(pattern) || path.size() == pattern.size()) return false;
  *parameter = path.substr(pattern.size());
  return true;
}

}  // namespace

std::span<const Protocol> protocols() {
  return kProtocols;
}

Match find_route(std::string_view method, std::string_view path) {
  Match match{.protocol = &kProtocols[0]};
  for (const Protocol& protocol : kProtocols) {
    for (const Route& route : protocol.routes) {
      std::string parameter;
      if (!matches(route.path, path, &parameter)) continue;
      match.protocol = &protocol;
      match.allowed += match.allowed.empty() ? "" : ", ";
      match.allowed += route.method;
      if (route.method == std::string_view("GET")) match.allowed += ", HEAD";
      if (method == route.method) {
        match.route = &route;
        match.parameter = std::move(parameter);
      }
    }
  }
  if (!match.allowed.empty()) match.allowed += ", OPTIONS";
  return match;
}

std::string loggable(const Error& error) {
  if (error.status == 429 || error.status >= 500) return error.message;
  return error.code.empty() ? error.param : error.code;
}

Error error_of(const Status& status) {
  switch (status.code()) {
    case Code::kInvalidArgument:
    case Code::kNotFound:
    case Code::kUnsupported:
      return {400, status.message(), "", ""};
    case Code::kResourceExhausted:
      return {429, status.message(), "", "resource_exhausted"};
    case Code::kUnavailable:
      return {503, status.message(), "", "unavailable"};
    case Code::kCancelled:
      return {499, status.message(), "", "cancelled"};
    default:
      return {500, status.message(), "", "internal_error"};
  }
}

}  // namespace invar::api
