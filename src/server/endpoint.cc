#include "server/endpoint.h"

#include <algorithm>

#include "base/log.h"

namespace invar::server {
namespace {

constexpr int64_t kOtherDescriptors = 128;  // model files, logs, clients on their way in and out

}  // namespace

Result<Endpoint> Endpoint::open(const ServerOptions& options) {
  Endpoint endpoint;
  endpoint.options = options;
  const int64_t wanted = options.limits.connections + kOtherDescriptors;
  const int64_t room = raise_descriptor_limit(wanted);
  if (room < wanted) {
    int32_t& connections = endpoint.options.limits.connections;
    connections = int32_t(std::max<int64_t>(room - kOtherDescriptors, room / 2));
    log_warning("the system allows {} open files, so there can be {} connections", room, connections);
  }
  if (options.port >= 0) {
    ASSIGN_OR_RETURN(endpoint.sockets, listen_tcp(options.host, options.port));
  }
  if (!options.unix_path.empty()) {
    ASSIGN_OR_RETURN(ListeningSocket socket, listen_unix(options.unix_path));
    endpoint.sockets.push_back(std::move(socket));
  }
  if (endpoint.sockets.empty()) return invalid_argument("nothing to listen on: give --port or --unix");
  if (!options.request_log_dir.empty()) {
    ASSIGN_OR_RETURN(endpoint.request_log,
                     RequestLog::open(options.request_log_dir, options.request_log_file_bytes,
                                      options.request_log_total_bytes));
  }
  return endpoint;
}

uint16_t Endpoint::port() const {
  return sockets.front().tcp() ? sockets.front().port() : 0;
}

}  // namespace invar::server
