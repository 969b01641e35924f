#include "server/acceptor.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "server/connection.h"

namespace invar::server {
namespace {

using boost::system::error_code;

// Accepted in one go, so that the connections that are there get their turn, also to leave.
constexpr int kAtOnce = 16;
// Connections above the limit that are told so; further ones are only closed.
constexpr size_t kRefusedAtOnce = 64;
constexpr auto kPause = std::chrono::milliseconds(100);

std::string remote_text(const sockaddr_storage& address, socklen_t size) {
  if (address.ss_family == AF_UNIX) return "unix";
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown";
  }
  return address.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port)
                                       : fmt::format("{}:{}", host, port);
}

}  // namespace

Acceptor::Acceptor(Context& context, ListeningSocket socket)
    : context_(context),
      socket_(std::move(socket)),
      watched_(context.loop->io, socket_->fd()),
      timer_(context.loop->io) {}

void Acceptor::start() {
  wait();
}

void Acceptor::close() {
  if (!socket_) return;
  timer_.cancel();
  watched_.cancel();
  watched_.release();
  socket_.reset();
}

void Acceptor::wait() {
  watched_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this](const error_code& ec) {
    if (!ec && socket_) accept_some();
  });
}

void Acceptor::pause() {
  timer_.expires_after(kPause);
  timer_.async_wait([this](const error_code& ec) {
    if (!ec && socket_) wait();
  });
}

void Acceptor::accept_some() {
  for (int i = 0; i < kAtOnce; i++) {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    const int fd =
        ::accept4(socket_->fd(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) break;
      // Out of descriptors or memory: the connection stays in the queue of the system, and trying at once
      // would only burn time.
      log_warning("cannot accept a connection: {}", std::strerror(errno));
      return pause();
    }
    if (socket_->tcp()) {
      const int on = 1;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    }
    address.ss_family = sa_family_t(socket_->tcp() ? address.ss_family : AF_UNIX);
    error_code ec;
    Socket client(context_.loop->io);
    client.assign({address.ss_family, 0}, fd, ec);
    if (ec) {
      ::close(fd);
      continue;
    }
    client.non_blocking(true, ec);
    context_.counters.connections_accepted++;
    const bool full = context_.connections.size() - context_.refused_connections >=
                      size_t(context_.options.limits.connections);
    if (full) context_.counters.connections_refused++;
    if (full && context_.refused_connections >= kRefusedAtOnce) continue;
    const auto connection =
        std::make_shared<Connection>(context_, std::move(client), remote_text(address, size));
    if (full) {
      connection->refuse();
    } else {
      connection->start();
    }
  }
  wait();
}

}  // namespace invar::server
