#include "api/request_document.h"

#include <fmt/format.h>

#include <utility>

#include "api/json_text.h"

namespace invar::api {

RequestDocument::RequestDocument(std::string_view body) {
  auto root = parse_json(body);
  if (!root.ok()) {
    Error error = error_of(root.status());
    error.code = "invalid_json";
    sink_.fail_with(std::move(error));
    return;
  }
  root_ = std::move(*root);
  if (!root_.is_object()) {
    sink_.fail(path_, fmt::format("the body must be a JSON object, not {}", json_type_name(root_)),
               "invalid_json");
    return;
  }
  fields_.emplace(root_.get_object(), path_, sink_);
}

}  // namespace invar::api
