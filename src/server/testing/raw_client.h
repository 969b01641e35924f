#pragma once
// RawClient: a blocking socket that says and hears exact bytes. For tests; every wait ends after ten seconds
// with what has come until then.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "server/request_head.h"

namespace invar::server::testing {

struct Answer {
  int status = 0;  // 0: none came, or not a whole one
  std::map<std::string, std::string> fields;
  std::string body;  // of a chunked one: without the chunks' heads
  bool chunked = false;

  // By its name in lower case; "" = absent.
  std::string field(const std::string& name) const {
    const auto found = fields.find(name);
    return found == fields.end() ? "" : found->second;
  }
};

class RawClient {
 public:
  explicit RawClient(uint16_t port, int receive_buffer = 0) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  explicit RawClient(const std::string& unix_path) {
    fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, unix_path.c_str(), sizeof(address.sun_path) - 1);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;
  ~RawClient() { close(); }

  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void reset() {
    const ::linger now{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close();
  }
  void end_sending() { ::shutdown(fd_, SHUT_WR); }

  // False: the other side does not take it any more.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(size_t(n));
    }
    return true;
  }

  // One more piece of what comes. False: the end, a reset, or too late.
  bool receive() {
    pollfd ready{fd_, POLLIN, 0};
    const int64_t left_ms = (deadline_ - now_ns()) / 1'000'000;
    if (left_ms <= 0 || ::poll(&ready, 1, int(left_ms)) <= 0) {
      timed_out_ = true;
      return false;
    }
    char buffer[16384];
    const ssize_t n = ::recv(fd_, buffer, sizeof(buffer), 0);
    if (n <= 0) {
      ended_ = true;
      was_reset_ = n < 0;
      return false;
    }
    input_.append(buffer, size_t(n));
    return true;
  }

  // Reads until `text` has come, and returns everything up to its end; "" if it does not come.
  std::string read_until(std::string_view text) {
    start_waiting();
    size_t at;
    while ((at = input_.find(text)) == std::string::npos) {
      if (!receive()) return "";
    }
    std::string got = input_.substr(0, at + text.size());
    input_.erase(0, got.size());
    return got;
  }

  std::string read_to_end() {
    start_waiting();
    while (receive()) {
    }
    return std::exchange(input_, {});
  }

  // Whether the other side closed (or reset), after all bytes were read.
  bool at_end() {
    start_waiting();
    while (receive()) {
    }
    return ended_ && input_.empty();
  }
  bool was_reset() const { return was_reset_; }

  // One whole answer; without_body: to HEAD.
  Answer read_answer(bool without_body = false) {
    Answer answer;
    const std::string head = read_until("\r\n\r\n");
    if (head.size() < 12 || !head.starts_with("HTTP/1.1 ")) return answer;
    const int status = std::atoi(head.substr(9, 3).c_str());
    for (size_t line = head.find("\r\n") + 2; line + 2 < head.size();) {
      const size_t end = head.find("\r\n", line), colon = head.find(": ", line);
      if (colon < end)
        answer.fields[to_lower(head.substr(line, colon - line))] = head.substr(colon + 2, end - colon - 2);
      line = end + 2;
    }
    if (without_body || status == 100 || status == 204) {
      answer.status = status;
      return answer;
    }
    if (answer.fields.contains("content-length")) {
      if (!read_exactly(std::stoul(answer.fields["content-length"]), answer.body)) return answer;
    } else if (answer.fields.contains("transfer-encoding")) {
      answer.chunked = true;
      while (true) {
        const std::string size_line = read_until("\r\n");
        if (size_line.empty()) return answer;
        const size_t size = std::stoul(size_line, nullptr, 16);
        std::string chunk;
        if (!read_exactly(size + 2, chunk)) return answer;
        if (size == 0) break;
        answer.body += chunk.substr(0, size);
      }
    } else {
      answer.body = read_to_end();
    }
    answer.status = status;
    return answer;
  }

  Answer ask(std::string_view request) {
    send(request);
    return read_answer();
  }

  bool read_exactly(size_t size, std::string& out) {
    start_waiting();
    while (input_.size() < size) {
      if (!receive()) return false;
    }
    out = input_.substr(0, size);
    // A fresh string: tests that measure memory have many clients.
    std::string(input_, size).swap(input_);
    return true;
  }

  int fd() const { return fd_; }

 private:
  void start_waiting() { deadline_ = now_ns() + 10'000'000'000; }

  int fd_ = -1;
  bool connected_ = false, ended_ = false, was_reset_ = false, timed_out_ = false;
  int64_t deadline_ = 0;
  std::string input_;
};

}  // namespace invar::server::testing
