#pragma once
// What the command line decides about the server. Plain values, fixed while it runs. 0 = off for every time
// but those that say otherwise.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace invar::server {

struct Limits {
  size_t head_bytes = 32 << 10;         // request line and fields; also of a trailer
  size_t head_fields = 100;             // also of a trailer
  size_t body_bytes = 32 << 20;         // of one request
  size_t all_bodies_bytes = 256 << 20;  // of all requests in progress together
  // Of all answers together that wait for their clients. Small ones, and one that is alone, do not mind it.
  size_t all_answers_bytes = 256 << 20;
  size_t pipelined_bytes = 16 << 10;      // read ahead of the request in progress
  size_t pending_stream_bytes = 1 << 20;  // frames that the client has not taken yet
  size_t kept_rejected_body =
      64 << 10;  // a refused request's body that is still read, to keep the connection
  int32_t connections = 4096;
};

struct Deadlines {
  int64_t idle_ms = 75'000;      // between requests, and before the first
  int64_t head_ms = 15'000;      // from its first byte
  int64_t body_ms = 120'000;     // whole body
  int64_t request_ms = 0;        // from the first byte to the last of the answer
  int64_t write_ms = 60'000;     // without progress of a pending write
  int64_t fin_grace_ms = 1'000;  // for an answer without stream, after the client's FIN; 0 = cancel at once
  int64_t linger_ms = 2'000;     // reading on after the last answer, so that it is not lost in a reset
  int64_t ping_ms = 15'000;      // an SSE comment when a stream was silent that long
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  int32_t port = 8080;    // 0 = any free one, -1 = no TCP
  std::string unix_path;  // "" = none; mode 0600

  Limits limits;
  Deadlines deadlines;

  std::vector<std::string> api_keys;      // none = open
  std::vector<std::string> cors_origins;  // "https://a.example", or "*"; none = no CORS fields at all

  int32_t workers = 2;      // threads that parse, render and tokenize
  bool log_probes = false;  // also successful /health and /metrics requests
  // One JSON line per request, on a thread of its own; empty = the log.
  std::function<void(std::string_view line)> access_sink;

  std::string request_log_dir;  // "" = none
  uint64_t request_log_file_bytes = 64 << 20;
  uint64_t request_log_total_bytes = uint64_t{1} << 30;
};

}  // namespace invar::server
