#include "server/server.h"

#include <fmt/format.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <list>
#include <random>

#include "base/log.h"
#include "base/thread_latency.h"
#include "server/acceptor.h"
#include "server/connection.h"
#include "server/context.h"

namespace invar::server {
namespace {

namespace asio = boost::asio;

constexpr int64_t kOtherDescriptors = 128;  // model files, logs, clients on their way in and out

}  // namespace

struct Server::Impl {
  Impl(const ServerOptions& options, const api::Service& service, Router router)
      : context(options, service, std::move(router)), guard(asio::make_work_guard(context.loop->io)) {
    context.on_closed = [this] { end_if_drained(); };
    context.id_prefix = fmt::format("req_{:08x}", std::random_device{}());
  }

  void drain() {
    if (context.draining) return;
    context.draining = true;
    for (Acceptor& acceptor : acceptors)
      acceptor.close();
    for (Connection* connection : all())
      connection->drain();
    end_if_drained();
  }

  void stop() {
    for (Acceptor& acceptor : acceptors)
      acceptor.close();
    for (Connection* connection : all())
      connection->abort("stopped");
    context.loop->io.stop();
  }

  void end_if_drained() {
    if (context.draining && context.connections.empty()) context.loop->io.stop();
  }

  // Closing takes a connection out of the set; its pending operations keep it alive until they are over.
  std::vector<Connection*> all() const { return {context.connections.begin(), context.connections.end()}; }

  Context context;
  std::list<Acceptor> acceptors;
  asio::executor_work_guard<asio::io_context::executor_type> guard;
  uint16_t port = 0;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options, const api::Service& service,
                                              Router router) {
  ServerOptions adjusted = options;
  const int64_t room = raise_descriptor_limit(options.limits.connections + kOtherDescriptors);
  if (room < options.limits.connections + kOtherDescriptors) {
    adjusted.limits.connections = int32_t(std::max<int64_t>(room - kOtherDescriptors, room / 2));
    log_warning("the system allows {} open files, so there can be {} connections", room,
                adjusted.limits.connections);
  }
  std::vector<ListeningSocket> sockets;
  if (options.port >= 0) {
    ASSIGN_OR_RETURN(sockets, listen_tcp(options.host, options.port));
  }
  const uint16_t port = sockets.empty() ? 0 : sockets.front().port();
  if (!options.unix_path.empty()) {
    ASSIGN_OR_RETURN(ListeningSocket socket, listen_unix(options.unix_path));
    sockets.push_back(std::move(socket));
  }
  if (sockets.empty()) return invalid_argument("nothing to listen on: give --port or --unix");

  auto impl = std::make_unique<Impl>(adjusted, service, std::move(router));
  impl->port = port;
  if (!options.request_log_dir.empty()) {
    ASSIGN_OR_RETURN(impl->context.request_log,
                     RequestLog::open(options.request_log_dir, options.request_log_file_bytes,
                                      options.request_log_total_bytes));
  }
  for (ListeningSocket& socket : sockets)
    impl->acceptors.emplace_back(impl->context, std::move(socket));
  for (Acceptor& acceptor : impl->acceptors)
    acceptor.start();
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::~Server() {
  // Here run() is over or never was, so that this thread may do its work.
  impl_->stop();
  impl_->context.workers.stop();
  impl_->context.workers.join();
  // What is still queued (outcomes, cancelled waits) goes while the context lives.
  impl_->context.loop->io.restart();
  impl_->guard.reset();
  impl_->context.loop->io.poll();
}

void Server::run() {
  prefer_short_slices();
  while (true) {
    try {
      impl_->context.loop->io.run();
      return;
    } catch (const std::exception& e) {
      // Out of memory at a bad place, say: one connection is lost, the others go on.
      log_error("in the server's loop: {}", e.what());
    }
  }
}

void Server::drain() {
  asio::post(impl_->context.loop->io, [impl = impl_.get()] { impl->drain(); });
}

void Server::stop_now() {
  asio::post(impl_->context.loop->io, [impl = impl_.get()] { impl->stop(); });
}

uint16_t Server::port() const {
  return impl_->port;
}

}  // namespace invar::server
