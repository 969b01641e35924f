#pragma once
// RequestRecord: what is told about a request when it is over, to the access log and to the counters.

#include <cstdint>
#include <string>

#include "api/protocol.h"

namespace invar::server {

struct RequestRecord {
  std::string id;
  int64_t unix_ns = 0;  // when its first byte came
  std::string remote;   // "127.0.0.1:50123", "unix"
  std::string method;
  std::string path;   // decoded, without the query
  std::string route;  // the pattern it matched, "other" if none: few different ones
  int status = 0;     // 0: nothing was answered
  double ms = 0;      // first byte in to last byte out
  uint64_t bytes_in = 0, bytes_out = 0;
  int key = -1;         // which API key
  std::string model;    // of requests that generate
  std::string outcome;  // "done", or why it ended early: "client gone", "slow reader", "deadline", "stopped"
  std::string error;    // api::loggable() of what the client was told
  double ttft_ms = -1;  // -1: no token
  api::ExchangeFacts facts;
};

// One line of JSON, without its line feed.
std::string access_line(const RequestRecord& record);

}  // namespace invar::server
