#include "api/openai_error.h"

#include "api/json_text.h"

namespace invar::api {
namespace {

const char* type_of(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 429) return "rate_limit_error";
  if (status == 503) return "service_unavailable_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

void append_or_null(std::string& out, const std::string& text) {
  if (text.empty()) {
    out += "null";
  } else {
    append_json_string(out, text);
  }
}

}  // namespace

void append_openai_error(std::string& out, const Error& error) {
  out += R"({"error":{"message":)";
  append_json_string(out, error.message);
  out += R"(,"type":")";
  out += type_of(error.status);
  out += R"(","param":)";
  append_or_null(out, error.param);
  out += R"(,"code":)";
  append_or_null(out, error.code);
  out += "}}";
}

void append_openai_error_frame(std::string& out, const Error& error) {
  out += "data: ";
  append_openai_error(out, error);
  out += "\n\n";
}

Response openai_error(const Error& error) {
  Response response;
  response.status = error.status;
  response.error = loggable(error);
  append_openai_error(response.body, error);
  return response;
}

}  // namespace invar::api
