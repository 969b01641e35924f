#include "server/listener.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/temporary_files.h"

namespace invar::server {
namespace {

constexpr int kBacklog = 1024;
constexpr mode_t kUnixMode = 0600;

Result<ListeningSocket> open_socket(int family) {
  const int fd = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return io_error(fmt::format("cannot make a socket: {}", std::strerror(errno)));
  return ListeningSocket(fd, family != AF_UNIX);
}

Status bind_error(int error, const std::string& host, int port) {
  switch (error) {
    case EADDRINUSE:
      return {Code::kUnavailable,
              fmt::format("port {} on {} is in use; choose another one with --port", port, host)};
    case EACCES:
      return {Code::kUnavailable,
              fmt::format("port {} needs more rights; choose one above 1023 with --port", port)};
    case EADDRNOTAVAIL:
      return invalid_argument(fmt::format("--host {}: this machine has no such address", host));
    default:
      return io_error(fmt::format("cannot listen on {} port {}: {}", host, port, std::strerror(error)));
  }
}

// Whether somebody accepts connections at that path.
bool answers(const sockaddr_un& address) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return true;
  const bool refused = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
                       errno == ECONNREFUSED;
  ::close(fd);
  return !refused;
}

}  // namespace

ListeningSocket::ListeningSocket(ListeningSocket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      tcp_(other.tcp_),
      path_(std::move(other.path_)),
      device_(other.device_),
      inode_(other.inode_) {
  other.path_.clear();
}

ListeningSocket::~ListeningSocket() {
  if (fd_ < 0) return;
  ::close(fd_);
  struct stat file{};
  if (!path_.empty() && ::lstat(path_.c_str(), &file) == 0 && file.st_dev == device_ &&
      file.st_ino == inode_) {
    ::unlink(path_.c_str());
  }
  if (!path_.empty()) forget_temporary(path_);
}

uint16_t ListeningSocket::port() const {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

Result<std::vector<ListeningSocket>> listen_tcp(const std::string& host, int port) {
  if (port < 0 || port > 65535) return invalid_argument(fmt::format("--port {}: must be 0 to 65535", port));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (failed != 0) {
    return invalid_argument(fmt::format("--host {}: {}", host, ::gai_strerror(failed)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> freed(list, ::freeaddrinfo);

  std::vector<ListeningSocket> sockets;
  Status last;
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    // With port 0 a second address would get another port.
    if (port == 0 && !sockets.empty()) break;
    auto made = open_socket(a->ai_family);
    if (!made.ok()) {
      last = made.status();  // say, a machine without IPv6
      continue;
    }
    const int fd = made->fd();
    const int on = 1, v6_only = host == "::" ? 0 : 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (a->ai_family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only));
    if (::bind(fd, a->ai_addr, a->ai_addrlen) != 0 || ::listen(fd, kBacklog) != 0) {
      const int error = errno;
      last = bind_error(error, host, port);
      if (error == EADDRNOTAVAIL) continue;  // "localhost" may name an IPv6 address that is not up
      return last;
    }
    sockets.push_back(std::move(*made));
  }
  if (sockets.empty()) return last;
  return sockets;
}

Result<ListeningSocket> listen_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path) || path.find('\0') != std::string::npos) {
    return invalid_argument(
        fmt::format("--unix: a path may have 1 to {} bytes", sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);

  struct stat file{};
  if (::lstat(path.c_str(), &file) == 0) {
    if (!S_ISSOCK(file.st_mode)) {
      return invalid_argument(fmt::format("--unix {}: there is a file that is no socket", path));
    }
    if (answers(address)) {
      return Status{Code::kUnavailable, fmt::format("--unix {}: another server answers there", path)};
    }
    ::unlink(path.c_str());
  }

  ASSIGN_OR_RETURN(ListeningSocket made, open_socket(AF_UNIX));
  // Before bind(), so that the file never exists with wider rights.
  ::fchmod(made.fd(), kUnixMode);
  if (::bind(made.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(made.fd(), kBacklog) != 0) {
    return io_error(fmt::format("--unix {}: {}", path, std::strerror(errno)));
  }
  made.path_ = path;
  note_temporary(path);
  if (::lstat(path.c_str(), &file) == 0) {
    made.device_ = file.st_dev;
    made.inode_ = file.st_ino;
  }
  return made;
}

int64_t raise_descriptor_limit(int64_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  if (limit.rlim_cur < rlim_t(wanted)) {
    limit.rlim_cur = std::min(limit.rlim_max, rlim_t(wanted));
    ::setrlimit(RLIMIT_NOFILE, &limit);
    ::getrlimit(RLIMIT_NOFILE, &limit);
  }
  return int64_t(std::min(limit.rlim_cur, rlim_t(wanted)));
}

}  // namespace invar::server
