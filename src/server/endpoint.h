#pragma once
// Endpoint: what a server takes from the machine, and so all of it that can fail: its sockets, which listen,
// and its request log. Made before the model is loaded, so that a wrong flag is told at once; clients that
// connect meanwhile wait until a Server runs on it. A value of the main thread.

#include <memory>
#include <vector>

#include "base/status.h"
#include "server/listener.h"
#include "server/options.h"
#include "server/request_log.h"

namespace invar::server {

struct Endpoint {
  // Errors name the flag.
  static Result<Endpoint> open(const ServerOptions& options);

  uint16_t port() const;  // of TCP; 0 without

  ServerOptions options;                 // with no more connections than the system has descriptors for
  std::vector<ListeningSocket> sockets;  // at least one; those of TCP first
  std::unique_ptr<RequestLog> request_log;
};

}  // namespace invar::server
