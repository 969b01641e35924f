#pragma once
// Status and Result<T>: how input and environment errors travel. Programmer errors use CHECK (check.h).
// No exception crosses a folder. A message names the field, file or flag at fault and what to do about it.

#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace invar {

enum class Code {
  kOk,
  kInvalidArgument,    // the caller's input is wrong
  kNotFound,           // a file, tensor, key or name is missing
  kUnsupported,        // well formed, but this build cannot do it
  kCorrupt,            // a file breaks its own format
  kResourceExhausted,  // memory, disk or a queue is full
  kUnavailable,        // a network or another process is not there
  kIo,                 // the operating system refused a read or write
  kCancelled,
  kInternal,  // a fault in Invar or in the numbers of a model
};

const char* code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same error with "context: " in front of its message.
  Status with_context(const std::string& context) const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

inline Status invalid_argument(std::string m) {
  return {Code::kInvalidArgument, std::move(m)};
}
inline Status not_found(std::string m) {
  return {Code::kNotFound, std::move(m)};
}
inline Status unsupported(std::string m) {
  return {Code::kUnsupported, std::move(m)};
}
inline Status corrupt(std::string m) {
  return {Code::kCorrupt, std::move(m)};
}
inline Status resource_exhausted(std::string m) {
  return {Code::kResourceExhausted, std::move(m)};
}
inline Status io_error(std::string m) {
  return {Code::kIo, std::move(m)};
}
inline Status internal_error(std::string m) {
  return {Code::kInternal, std::move(m)};
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}                                 // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) { CHECK(!status_.ok()); }  // NOLINT

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & {
    CHECK(ok());
    return *value_;
  }
  const T& value() const& {
    CHECK(ok());
    return *value_;
  }
  T&& value() && {
    CHECK(ok());
    return std::move(*value_);
  }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace invar

#define INVAR_CONCAT_(a, b) a##b
#define INVAR_CONCAT(a, b) INVAR_CONCAT_(a, b)

// Returns the error from the enclosing function.
#define RETURN_IF_ERROR(expr)                                            \
  do {                                                                   \
    if (::invar::Status status_ = (expr); !status_.ok()) return status_; \
  } while (0)

// ASSIGN_OR_RETURN(auto x, f()): x is the value of f(), or the enclosing function returns its error.
#define ASSIGN_OR_RETURN(lhs, expr) ASSIGN_OR_RETURN_(INVAR_CONCAT(result_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                      \
  if (!tmp.ok()) return tmp.status();     \
  lhs = std::move(tmp).value()
