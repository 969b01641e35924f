#pragma once
// FakeHub: a server on 127.0.0.1 that answers as a model hub does, for tests: the list of a repository's
// files, redirects to a second origin, ranges; and every fault that a test asks for. Threads of its own;
// counters are safe to read while it runs.

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"

namespace invar::testing {

struct FakeRequest {
  std::string path;                           // with its query
  std::map<std::string, std::string> fields;  // names in lower case
  int number = 0;                             // of the requests for this path, from 1
};
struct FakeReply {
  int status = 200;
  std::vector<std::string> lines;  // of the head, besides the length
  std::string body;
  int64_t cut = -1;  // ends the connection after so many bytes of the body
};

class FakeHub {
 public:
  using Handler = std::function<FakeReply(const FakeRequest&)>;
  explicit FakeHub(Handler handler);
  ~FakeHub();

  std::string origin() const;
  std::vector<FakeRequest> requests() const;  // so far
  int count(const std::string& part) const;   // requests whose path has this part

  // What an honest server says: 206 with the range that was asked for, else 200 with everything.
  static FakeReply file(const FakeRequest& request, const std::string& content);
  static FakeReply redirect(const std::string& to);

 private:
  void serve(int peer);

  Handler handler_;
  int listener_;
  uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;
  std::vector<FakeRequest> requests_;
  std::map<std::string, int> numbers_;
  std::vector<std::thread> peers_;
  std::thread acceptor_;
};

inline FakeHub::FakeHub(Handler handler)
    : handler_(std::move(handler)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0);
  CHECK(::listen(listener_, 64) == 0);
  CHECK(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] {
    for (;;) {
      const int peer = ::accept(listener_, nullptr, nullptr);
      if (peer < 0 || stop_) {
        if (peer >= 0) ::close(peer);
        return;
      }
      const std::lock_guard lock(mutex_);
      peers_.emplace_back([this, peer] { serve(peer); });
    }
  });
}

inline FakeHub::~FakeHub() {
  stop_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  ::close(listener_);
  for (std::thread& t : peers_)
    t.join();
}

inline std::string FakeHub::origin() const {
  return fmt::format("http://127.0.0.1:{}", port_);
}

inline std::vector<FakeRequest> FakeHub::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

inline int FakeHub::count(const std::string& part) const {
  int n = 0;
  for (const FakeRequest& r : requests())
    n += r.path.find(part) != std::string::npos ? 1 : 0;
  return n;
}

inline FakeReply FakeHub::redirect(const std::string& to) {
  return {302, {"Location: " + to}, "Found. Redirecting", -1};
}

inline FakeReply FakeHub::file(const FakeRequest& request, const std::string& content) {
  const auto range = request.fields.find("range");
  if (range == request.fields.end()) return {200, {}, content, -1};
  size_t first = 0, last = 0;
  CHECK(std::sscanf(range->second.c_str(), "bytes=%zu-%zu", &first, &last) == 2 && first <= last);
  if (first >= content.size()) return {416, {}, "", -1};
  last = std::min(last, content.size() - 1);
  return {206,
          {fmt::format("Content-Range: bytes {}-{}/{}", first, last, content.size())},
          content.substr(first, last - first + 1),
          -1};
}

// One request per connection.
inline void FakeHub::serve(int peer) {
  std::string head;
  char bytes[4096];
  while (head.find("\r\n\r\n") == std::string::npos) {
    const ssize_t n = ::recv(peer, bytes, sizeof bytes, 0);
    if (n <= 0) {
      ::close(peer);
      return;
    }
    head.append(bytes, size_t(n));
  }
  FakeRequest request;
  const size_t space = head.find(' ');
  request.path = head.substr(space + 1, head.find(' ', space + 1) - space - 1);
  for (size_t at = head.find("\r\n") + 2; at < head.size();) {
    const size_t end = head.find("\r\n", at), colon = head.find(':', at);
    if (end == at) break;
    std::string name = head.substr(at, colon - at);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return char(std::tolower(c)); });
    request.fields[name] = head.substr(colon + 2, end - colon - 2);
    at = end + 2;
  }
  {
    const std::lock_guard lock(mutex_);
    request.number = ++numbers_[request.path];
    requests_.push_back(request);
  }
  const FakeReply reply = handler_(request);
  std::string out = fmt::format("HTTP/1.1 {} X\r\nConnection: close\r\nContent-Length: {}\r\n", reply.status,
                                reply.body.size());
  for (const std::string& line : reply.lines)
    out += line + "\r\n";
  out += "\r\n" + reply.body.substr(0, reply.cut < 0 ? std::string::npos : size_t(reply.cut));
  for (size_t sent = 0; sent < out.size();) {
    const ssize_t n = ::send(peer, out.data() + sent, out.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) break;
    sent += size_t(n);
  }
  ::shutdown(peer, SHUT_WR);
  while (::recv(peer, bytes, sizeof bytes, 0) > 0) {
  }
  ::close(peer);
}

}  // namespace invar::testing
