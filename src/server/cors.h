#pragma once
// Cors: which web pages may read our answers. Off unless origins were listed; never with credentials.

#include <span>
#include <string>
#include <vector>

#include "server/request_head.h"
#include "server/response_head.h"

namespace invar::server {

class Cors {
 public:
  explicit Cors(std::span<const std::string> origins);

  // Adds to every answer what lets the asking page read it.
  void add_fields(const RequestHead& head, Fields& fields) const;
  // Whether this OPTIONS request is a browser's preflight of an allowed page; adds its fields too.
  bool add_preflight_fields(const RequestHead& head, std::string_view methods, Fields& fields) const;

 private:
  // What Access-Control-Allow-Origin says; "" = nothing.
  std::string allowed_origin(const RequestHead& head) const;

  std::vector<std::string> origins_;
  bool any_ = false;
};

}  // namespace invar::server
