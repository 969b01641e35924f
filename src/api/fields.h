#pragma once
// Fields: typed access to the members of a JSON object from a client. Every fault is reported once, as an
// Error that names the path ("messages[2].content[0].text"); the first one is kept, later reads go on
// quietly, so that a parser reads all its fields in a row and asks once at the end. null counts as absent,
// unknown keys are nobody's business. A value on the stack of the parsing thread; borrows object, path and
// sink.

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/protocol.h"

namespace invar::api {

namespace json = boost::json;

// Where a value stands. Lives on the stack; becomes text only when something is wrong.
class Path {
 public:
  Path() = default;  // the document
  Path(const Path* parent, std::string_view key) : parent_(parent), key_(key) {}
  Path(const Path* parent, size_t index) : parent_(parent), index_(int64_t(index)) {}
  std::string text() const;

 private:
  const Path* parent_ = nullptr;
  std::string_view key_;
  int64_t index_ = -1;
};

// The first error of a request.
class ErrorSink {
 public:
  // "FIELD: what"
  void fail(const Path& path, std::string_view what, std::string_view code = {});
  // The message as it is.
  void fail_with(Error error);
  bool failed() const { return error_.has_value(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

// "a string", "a number", ...
const char* json_type_name(const json::value& value);
std::string_view view(const json::string& s);

// One value, of which the type is asked. They return whether it has it; otherwise the sink knows.
bool read_bool(const json::value& value, const Path& path, ErrorSink& sink, bool* out);
bool read_number(const json::value& value, const Path& path, ErrorSink& sink, double min, double max,
                 double* out);
// Accepts whole numbers written as fractions (1.0).
bool read_integer(const json::value& value, const Path& path, ErrorSink& sink, int64_t min, int64_t max,
                  int64_t* out);
bool read_string(const json::value& value, const Path& path, ErrorSink& sink, std::string_view* out);

class Fields {
 public:
  Fields(const json::object& object, const Path& path, ErrorSink& sink)
      : object_(object), path_(path), sink_(sink) {}

  // nullptr: absent or null.
  const json::value* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }

  // They set *out and return true if the field is there and right; else leave it as it was.
  bool boolean(std::string_view key, bool* out) const;
  bool number(std::string_view key, double min, double max, double* out) const;
  bool integer(std::string_view key, int64_t min, int64_t max, int64_t* out) const;
  bool string(std::string_view key, std::string_view* out) const;  // borrows from the document
  const json::array* array(std::string_view key) const;
  const json::object* object(std::string_view key) const;

  // The field must be there.
  bool required_string(std::string_view key, std::string_view* out) const;

  void fail(std::string_view key, std::string_view what, std::string_view code = {}) const;
  Path at(std::string_view key) const { return {&path_, key}; }
  const json::object& object() const { return object_; }
  const Path& path() const { return path_; }
  ErrorSink& sink() const { return sink_; }

 private:
  const json::object& object_;
  const Path& path_;
  ErrorSink& sink_;
};

}  // namespace invar::api
