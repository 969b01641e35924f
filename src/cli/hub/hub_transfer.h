#pragma once
// HubTransfer: GET requests to a model hub, several at a time, with what such servers do: redirects to other
// hosts, waiting times, broken connections, ranges that are not what was asked for. The token goes to the
// endpoint's own origin only and into no message. One thread; the HTTP library is included in the .cc only.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace invar {

struct HubOptions {
  std::string endpoint = "https://huggingface.co";
  std::string token;        // "": none
  bool use_proxies = true;  // those of the environment, as the HTTP library finds them
  int parallel = 4;         // requests at once
  int attempts = 6;         // of a request in a row without progress
  const std::atomic<bool>* stop = nullptr;
  // Waits before a request is tried again; may be cut short by `stop`. Empty: sleeps.
  std::function<void(double seconds)> wait;
};

// A part of a file, or with size -1 a whole small body.
struct HubPart {
  std::string path;  // behind the endpoint: "/owner/name/resolve/..."
  std::string what;  // for messages: "owner/name: model.gguf"
  int64_t begin = 0;
  int64_t end = -1;    // one past the last byte; -1: all that comes
  int64_t total = -1;  // of the file; a server that says otherwise is refused
  int64_t most = 0;    // bytes that a body without an end may have
  bool ranged = true;  // false: asks for no range, [begin, end) is the whole file
  // In order from `begin`. offset: in the file. After a break the same bytes may come again.
  std::function<Status(int64_t offset, std::string_view bytes)> write;
  // The part is whole.
  std::function<Status()> finish;
};

class HubTransfer {
 public:
  static Result<std::unique_ptr<HubTransfer>> create(HubOptions options);
  ~HubTransfer();

  // All parts; the first error ends everything. kUnsupported: the server does not do ranges (nothing else
  // gives that code). kCancelled: stopped.
  Status run(std::vector<HubPart> parts);
  Result<std::string> get(const std::string& path, const std::string& what, int64_t most);

 private:
  struct Impl;
  explicit HubTransfer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// An endpoint as it may be given: http or https, a host, a path at most; without a slash at its end.
Result<std::string> parse_hub_endpoint(const std::string& text);

}  // namespace invar
