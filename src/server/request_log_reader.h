#pragma once
// Reads what RequestLog wrote (request_log.h says how), for `invar replay`. Lines that are cut off or damaged
// are counted and skipped; a line that no server writes, for its length, is an error. Any thread.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace invar::server {

struct LoggedFrame {
  double ms = 0;  // after the first byte of the request
  std::string data;
};

struct LoggedRequest {
  std::string id;
  std::string time, remote;
  std::string method, target;
  std::vector<std::pair<std::string, std::string>> fields;  // names in lower case, without keys
  std::string body;

  int status = 0;  // 0: no answer is in the log
  std::string content_type;
  std::string answer;               // body of an answer without stream
  std::vector<LoggedFrame> frames;  // of a stream
  std::string outcome;              // "done"; "" = its end is not in the log
};

struct LoggedRequests {
  std::vector<LoggedRequest> requests;  // in the order in which they were complete
  uint64_t damaged_lines = 0, lost_lines = 0;
};

// More than the queue of a RequestLog takes, written in escapes of six bytes for one.
inline constexpr size_t kMaxLogLineBytes = 512 << 20;

// `path`: one file, or a directory with all its files in order.
Result<LoggedRequests> read_request_log(const std::string& path, size_t max_line_bytes = kMaxLogLineBytes);

}  // namespace invar::server
