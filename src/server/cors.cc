#include "server/cors.h"

#include <algorithm>

namespace invar::server {
namespace {

constexpr std::string_view kDefaultFields = "authorization, content-type, x-api-key";

bool is_token_list(std::string_view list) {
  while (true) {
    const size_t comma = list.find(',');
    if (!is_token(trim(list.substr(0, comma)))) return false;
    if (comma == std::string_view::npos) return true;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace

Cors::Cors(std::span<const std::string> origins) : origins_(origins.begin(), origins.end()) {
  any_ = std::find(origins_.begin(), origins_.end(), "*") != origins_.end();
}

std::string Cors::allowed_origin(const RequestHead& head) const {
  const std::string* origin = head.find("origin");
  if (origin == nullptr) return "";
  if (any_) return "*";
  return std::find(origins_.begin(), origins_.end(), *origin) != origins_.end() ? *origin : "";
}

void Cors::add_fields(const RequestHead& head, Fields& fields) const {
  if (origins_.empty()) return;
  // The answer differs by origin, and a cache in between has to know.
  if (!any_) fields.emplace_back("Vary", "Origin");
  const std::string origin = allowed_origin(head);
  if (origin.empty()) return;
  fields.emplace_back("Access-Control-Allow-Origin", origin);
  fields.emplace_back("Access-Control-Expose-Headers", "x-request-id");
}

bool Cors::add_preflight_fields(const RequestHead& head, std::string_view methods, Fields& fields) const {
  if (head.find("access-control-request-method") == nullptr || allowed_origin(head).empty()) return false;
  const std::string* asked = head.find("access-control-request-headers");
  fields.emplace_back("Access-Control-Allow-Methods", std::string(methods));
  fields.emplace_back("Access-Control-Allow-Headers",
                      asked != nullptr && is_token_list(*asked) ? *asked : std::string(kDefaultFields));
  fields.emplace_back("Access-Control-Max-Age", "600");
  return true;
}

}  // namespace invar::server
