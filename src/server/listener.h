#pragma once
// Listening sockets, as plain descriptors: bound, listening, not blocking. Owned by whoever holds the value.

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "server/options.h"

namespace invar::server {

class ListeningSocket {
 public:
  ListeningSocket(int fd, bool tcp) : fd_(fd), tcp_(tcp) {}
  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  ~ListeningSocket();  // closes, and removes the file of a unix socket that is still ours

  int fd() const { return fd_; }
  bool tcp() const { return tcp_; }
  uint16_t port() const;  // TCP

 private:
  friend Result<ListeningSocket> listen_unix(const std::string& path);

  int fd_ = -1;
  bool tcp_ = true;
  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// One socket per address that the host name has. A name means --host, a port --port.
Result<std::vector<ListeningSocket>> listen_tcp(const std::string& host, int port);
// Mode 0600. A socket file that nobody answers is replaced; anything else at that path is an error.
Result<ListeningSocket> listen_unix(const std::string& path);

// Room for that many descriptors, as far as the system lets us; returns how many there is room for.
int64_t raise_descriptor_limit(int64_t wanted);

}  // namespace invar::server
