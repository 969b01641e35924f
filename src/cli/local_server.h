#pragma once
// LocalServer: an ApiTarget in this process: the handlers that a server calls, on a model loaded here,
// without sockets. What only the transport of a server answers (keys, CORS, /health, /metrics) is not here.

#include <atomic>
#include <memory>

#include "cli/api_target.h"
#include "cli/served_model.h"

namespace invar {

class LocalServer final : public ApiTarget {
 public:
  // For tests: the service is borrowed.
  explicit LocalServer(const api::Service& service);
  static Result<std::unique_ptr<LocalServer>> load(EngineFlags& flags, const ServedModelOptions& options);
  ~LocalServer() override;

  Result<ApiReply> send(const ApiRequest& request, const StreamSink& sink = {}) override;
  void cancel() override;
  void resume() override;
  const api::Service* service() const override { return &service_; }

 private:
  class Bell;
  LocalServer(std::unique_ptr<ServedModel> model, const api::Service& service);

  const std::unique_ptr<ServedModel> model_;  // null in tests
  const api::Service& service_;
  std::atomic<bool> cancelled_{false};
  const std::shared_ptr<Bell> bell_;  // rung by the engine, and by cancel()
};

}  // namespace invar
