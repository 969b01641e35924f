#pragma once
// Server: HTTP for the routes that it is given, on the sockets of an Endpoint. Knows no protocol and no
// model.
//
// One thread (that of run()) does all socket work; Route::handle runs on workers. drain() and stop_now() may
// be called from any thread, before, during and after run(), but not from a signal handler.

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "api/protocol.h"
#include "api/service.h"
#include "engine/stats.h"
#include "server/endpoint.h"

namespace invar::server {

class Server {
 public:
  // Called on the server's thread. Router: api::find_route, or a test's own; Stats: of /metrics.
  using Router = std::function<api::Match(std::string_view method, std::string_view path)>;
  using Stats = std::function<EngineStats()>;

  // `service` is borrowed and outlives the server.
  Server(Endpoint endpoint, const api::Service& service, Router router, Stats stats = {});
  // Ends what still runs, as stop_now().
  ~Server();

  // Serves until drain() has found its end or stop_now() was called. Once.
  void run();
  // Accepts nothing new; requests in progress end, idle connections close.
  void drain();
  // Drops everything.
  void stop_now();

  uint16_t port() const;  // of TCP; 0 without

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace invar::server
