#pragma once
// ApiTarget: something that answers requests of the HTTP API: a running server (http_client.h) or a model in
// this process (local_server.h). The verbs that talk to a model know only this. One thread sends; cancel()
// and resume() may be called from any.

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace invar::api {
struct Service;
}

namespace invar {

struct ApiRequest {
  std::string method = "POST";
  std::string target;  // "/v1/chat/completions", with a query if there is one
  std::vector<std::pair<std::string, std::string>> fields;  // of the head, besides those of the transport
  std::string body;
};

struct ApiReply {
  int status = 0;
  std::string content_type;
  std::string body;     // without what went to a sink
  bool broken = false;  // the connection ended before the answer did

  bool is_stream() const { return content_type.starts_with("text/event-stream"); }
};

class ApiTarget {
 public:
  // Gets the bytes of a stream as they come, on the thread that sends.
  using StreamSink = std::function<void(std::string_view bytes)>;

  virtual ~ApiTarget() = default;
  // Waits for the whole answer, whatever its status is. Errors: kUnavailable (nobody answers), kCancelled.
  virtual Result<ApiReply> send(const ApiRequest& request, const StreamSink& sink = {}) = 0;
  // Ends the request in progress; until resume() the next ones end at once.
  virtual void cancel() = 0;
  virtual void resume() = 0;
  // What answers, where that is known beforehand; nullptr: it is elsewhere.
  virtual const api::Service* service() const { return nullptr; }
};

}  // namespace invar
