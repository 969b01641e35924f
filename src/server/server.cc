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

}  // namespace

struct Server::Impl {
  Impl(Endpoint endpoint, const api::Service& service, Router router, Stats stats)
      : context(endpoint.options, service, std::move(router), std::move(stats)),
        guard(asio::make_work_guard(context.loop->io)),
        port(endpoint.port()) {
    context.on_closed = [this] { end_if_drained(); };
    context.id_prefix = fmt::format("req_{:08x}", std::random_device{}());
    context.request_log = std::move(endpoint.request_log);
    for (ListeningSocket& socket : endpoint.sockets)
      acceptors.emplace_back(context, std::move(socket)).start();
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
  const uint16_t port;
};

Server::Server(Endpoint endpoint, const api::Service& service, Router router, Stats stats)
    : impl_(std::make_unique<Impl>(std::move(endpoint), service, std::move(router), std::move(stats))) {}

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
