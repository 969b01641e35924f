// GET /v1/models and /v1/models/{id}: the names under which the one served model is known.

#include <fmt/format.h>

#include <algorithm>

#include "api/json_text.h"
#include "api/openai_error.h"
#include "api/routes.h"
#include "api/service.h"
#include "base/quote.h"

namespace invar::api {
namespace {

void append_model(std::string& out, const Service& service, const std::string& name) {
  out += R"({"id":)";
  append_json_string(out, name);
  out += R"(,"object":"model","created":)";
  append_json_int(out, service.created);
  out += R"(,"owned_by":"invar","max_model_len":)";
  append_json_int(out, service.context);
  out += R"(,"system_fingerprint":)";
  append_json_string(out, service.fingerprint);
  out += '}';
}

}  // namespace

Outcome get_models(const Call& call) {
  Response response;
  response.body = R"({"object":"list","data":)";
  char before = '[';
  for (const std::string& name : call.service.model_names) {
    response.body += before;
    append_model(response.body, call.service, name);
    before = ',';
  }
  response.body += before == '[' ? "[]}" : "]}";
  return response;
}

Outcome get_model(const Call& call) {
  const auto& names = call.service.model_names;
  if (std::find(names.begin(), names.end(), call.parameter) == names.end())
    return openai_error(
        {404, fmt::format("the model {} does not exist", quote(call.parameter)), "model", "model_not_found"});
  Response response;
  append_model(response.body, call.service, call.parameter);
  return response;
}

}  // namespace invar::api
