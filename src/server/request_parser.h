#pragma once
// RequestParser: the bytes of one HTTP/1 request. Beast knows the grammar; this adds what is stricter than
// it: limits, and refusal of everything that two parsers may read in two ways (folded lines, repeated or
// combined lengths, transfer codings). Lives from the first byte of a request to its end; one thread.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/options.h"
#include "server/request_head.h"

namespace invar::server {

struct ParseError {
  int status = 0;  // HTTP
  std::string message;
};

class RequestParser {
 public:
  enum class State { kHead, kBody, kDone, kFailed };

  explicit RequestParser(const Limits& limits);
  ~RequestParser();

  // Takes bytes off the front and returns how many. What it leaves, it wants to see again with more behind
  // it, unless the head has just ended: then it returns at once, so that the caller can judge before the body
  // comes.
  size_t feed(std::string_view bytes);

  State state() const;
  const ParseError& error() const;  // kFailed
  const RequestHead& head() const;  // after kHead
  std::string& body();              // grows in kBody
  void discard_body();              // what comes from now on is only counted against the limits

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace invar::server
