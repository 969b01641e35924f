#pragma once
// Context: what all connections of a server share. Owned by the Server; touched on its I/O thread only, but
// for the workers' queue. Connections borrow it and are gone before it.

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "api/protocol.h"
#include "api/service.h"
#include "engine/stats.h"
#include "server/access_log.h"
#include "server/api_keys.h"
#include "server/cors.h"
#include "server/http_counters.h"
#include "server/options.h"
#include "server/request_log.h"

namespace invar::server {

using Socket = boost::asio::generic::stream_protocol::socket;
using Router = std::function<api::Match(std::string_view method, std::string_view path)>;
using Stats = std::function<EngineStats()>;

// Outlives the server where the engine still holds somebody's notify().
struct Loop {
  boost::asio::io_context io{1};
};

class Connection;

struct Context {
  Context(const ServerOptions& o, const api::Service& s, Router r, Stats st)
      : options(o),
        service(s),
        router(std::move(r)),
        stats(std::move(st)),
        keys(o.api_keys),
        cors(o.cors_origins),
        access(o.access_sink) {}

  const ServerOptions options;
  const api::Service& service;
  const Router router;
  const Stats stats;  // may be empty
  const ApiKeys keys;
  const Cors cors;

  const std::shared_ptr<Loop> loop = std::make_shared<Loop>();
  boost::asio::thread_pool workers{size_t(std::max(1, options.workers))};

  std::unordered_set<Connection*> connections;
  size_t refused_connections = 0;  // of these, those above the limit, which only get a 503
  bool draining = false;
  size_t body_bytes = 0;    // of requests in progress
  size_t unsent_bytes = 0;  // of all connections' output
  std::function<void()> on_closed;

  HttpCounters counters;
  AccessLog access;
  std::unique_ptr<RequestLog> request_log;

  // Where reads go first: a connection owns no buffer while it has nothing to keep.
  std::vector<char> scratch = std::vector<char>(64 << 10);
  std::string frames;  // what an exchange adds in one go

  uint64_t next_serial = 1;
  std::string id_prefix;
};

}  // namespace invar::server
