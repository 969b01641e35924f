#pragma once
// HttpClient: an ApiTarget over HTTP, on TCP or a unix socket. Keeps its connection. The library behind it is
// included in http_client.cc only. Proxies of the environment are not used.

#include <memory>
#include <string>

#include "cli/api_target.h"

namespace invar {

// Of an answer that is no stream; more is kResourceExhausted. The largest honest ones have some 30 MB.
inline constexpr size_t kMaxReplyBytes = size_t{64} << 20;

struct ServerAddress {
  std::string shown;      // as it was given
  std::string origin;     // "http://127.0.0.1:8080"
  std::string prefix;     // path in front of every target, "" or "/..."
  std::string unix_path;  // "": TCP
};

// "http://host:port", "https://...", "host:port", "unix:/path"; a "/v1" at the end is left out, since targets
// have it.
Result<ServerAddress> parse_server_address(const std::string& text);

class HttpClient final : public ApiTarget {
 public:
  // api_key: "" = none is sent.
  static Result<std::unique_ptr<HttpClient>> create(ServerAddress address, std::string api_key);
  ~HttpClient() override;

  Result<ApiReply> send(const ApiRequest& request, const StreamSink& sink = {}) override;
  void cancel() override;
  void resume() override;

 private:
  struct Impl;
  explicit HttpClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace invar
