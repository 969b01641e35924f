#pragma once
// AccessLog: one line of JSON per request, to the log or a sink of the caller's, written on a thread of its
// own so that a stopped terminal stops nobody's stream.

#include <functional>
#include <string>
#include <string_view>

#include "server/background_queue.h"
#include "server/request_record.h"

namespace invar::server {

class AccessLog {
 public:
  explicit AccessLog(std::function<void(std::string_view line)> sink);  // empty: the log
  void write(const RequestRecord& record);

 private:
  BackgroundQueue<std::string> lines_;
};

}  // namespace invar::server
