#pragma once
// RequestDocument: the body of a request as a JSON object, and the first thing wrong with it. A value on the
// stack of the parsing thread.

#include <boost/json/value.hpp>
#include <optional>
#include <string_view>

#include "api/fields.h"

namespace invar::api {

class RequestDocument {
 public:
  explicit RequestDocument(std::string_view body);
  RequestDocument(const RequestDocument&) = delete;
  RequestDocument& operator=(const RequestDocument&) = delete;

  bool failed() const { return sink_.failed(); }
  const Error& error() const { return sink_.error(); }
  // Only of a body that could be read.
  const Fields& fields() const { return *fields_; }

 private:
  json::value root_;
  Path path_;
  ErrorSink sink_;
  std::optional<Fields> fields_;
};

}  // namespace invar::api
