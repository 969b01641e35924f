#pragma once
// RequestLog: what clients sent and what they got, byte for byte, for `invar replay`. Written on a thread of
// its own; what it cannot keep up with is left out, and a full disk ends it with one line in the log.
//
// Files DIR/requests-NNNNNN.jsonl, each line one JSON object:
//   {"t":"request","id","time","remote","head","body"}   "head": request line and fields, CR LF after each,
//                                       without those that carry keys; "body64" (base64) where it is not
//                                       UTF-8
//   {"t":"answer","id","ms","status","content_type","body"}   "body" is absent for streams
//   {"t":"frame","id","ms","data"}      one SSE frame with its empty line; several may share their time
//   {"t":"end","id","ms","outcome"}     "done", or why it ended early
//   {"t":"lost","count"}                lines that were left out before this one
// "ms" counts from the first byte of the request. A request's lines may continue in the next file.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "server/request_record.h"

namespace invar::server {

class RequestLog {
 public:
  // Makes the directory. A new file is begun at `file_bytes`; the oldest go when all have `total_bytes`.
  static Result<std::unique_ptr<RequestLog>> open(const std::string& dir, uint64_t file_bytes,
                                                  uint64_t total_bytes);
  ~RequestLog();  // when everything is written

  // One thread; they never wait. `start_ns`: now_ns() of the request's first byte.
  void request(const RequestRecord& record, std::string head, std::string_view body);
  void answer(const RequestRecord& record, int64_t start_ns, std::string_view content_type,
              std::string_view body);
  void data(const RequestRecord& record, int64_t start_ns, std::string_view frames);
  void end(const RequestRecord& record);

 private:
  struct Impl;
  explicit RequestLog(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace invar::server
