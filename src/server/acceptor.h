#pragma once
// Acceptor: turns a listening socket's clients into connections. On the server's I/O thread.

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "server/context.h"
#include "server/listener.h"

namespace invar::server {

class Acceptor {
 public:
  Acceptor(Context& context, ListeningSocket socket);

  void start();
  void close();  // nobody connects any more; a unix socket's file is removed

 private:
  void wait();
  void accept_some();
  void pause();

  Context& context_;
  std::optional<ListeningSocket> socket_;
  boost::asio::posix::stream_descriptor watched_;  // borrows the descriptor
  boost::asio::steady_timer timer_;
};

}  // namespace invar::server
