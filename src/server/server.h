#pragma once
// Server: HTTP for the routes that it is given, on TCP and unix sockets. Knows no protocol and no model.
//
// One thread (that of run()) does all socket work; Route::handle runs on workers. drain() and stop_now() may
// be called from any thread, before, during and after run(), but not from a signal handler.

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "api/protocol.h"
#include "api/service.h"
#include "base/status.h"
#include "server/options.h"

namespace invar::server {

class Server {
 public:
  // api::find_route, or a test's own; called on the server's thread.
  using Router = std::function<api::Match(std::string_view method, std::string_view path)>;

  // Listens when it returns; connections wait until run(). `service` is borrowed and outlives the server.
  static Result<std::unique_ptr<Server>> start(const ServerOptions& options, const api::Service& service,
                                               Router router);
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
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace invar::server
