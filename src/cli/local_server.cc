#include "cli/local_server.h"

#include <fmt/format.h>

#include <condition_variable>
#include <exception>
#include <mutex>

#include "api/protocol.h"
#include "server/request_head.h"

namespace invar {
namespace {

const Status kInterrupted(Code::kCancelled, "interrupted");

ApiReply reply_of(api::Response response) {
  ApiReply reply;
  reply.status = response.status;
  reply.content_type = std::move(response.content_type);
  reply.body = std::move(response.body);
  return reply;
}

}  // namespace

class LocalServer::Bell {
 public:
  void ring() {
    {
      const std::lock_guard lock(mutex_);
      rung_ = true;
    }
    changed_.notify_one();
  }
  // Until it was rung since the last wait().
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return rung_; });
    rung_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool rung_ = false;
};

LocalServer::LocalServer(std::unique_ptr<ServedModel> model, const api::Service& service)
    : model_(std::move(model)), service_(service), bell_(std::make_shared<Bell>()) {}
LocalServer::LocalServer(const api::Service& service) : LocalServer(nullptr, service) {}
LocalServer::~LocalServer() = default;

Result<std::unique_ptr<LocalServer>> LocalServer::load(EngineFlags& flags,
                                                       const ServedModelOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<ServedModel> model, ServedModel::load(flags, options));
  const api::Service& service = model->service();
  return std::unique_ptr<LocalServer>(new LocalServer(std::move(model), service));
}

Result<ApiReply> LocalServer::send(const ApiRequest& request, const StreamSink& sink) {
  if (cancelled_) return kInterrupted;
  const server::Target target = server::parse_target(request.target);
  const bool head_only = request.method == "HEAD";
  const api::Request whole{head_only ? "GET" : request.method, target.path, target.query, request.body};
  const api::Match match = api::find_route(whole.method, whole.path);
  // As a server words it.
  if (match.allowed.empty())
    return reply_of(match.protocol->error({404, "there is no such path", "", "unknown_path"}));
  if (match.route == nullptr)
    return reply_of(match.protocol->error(
        {405, fmt::format("this path has {}", match.allowed), "", "method_not_allowed"}));

  api::Outcome outcome;
  try {
    outcome = match.route->handle({service_, whole, match.parameter, [bell = bell_] { bell->ring(); }});
  } catch (const std::exception& e) {
    return internal_error(fmt::format("{} {}: {}", request.method, request.target, e.what()));
  }
  if (auto* response = std::get_if<api::Response>(&outcome)) {
    if (head_only) response->body.clear();
    return reply_of(std::move(*response));
  }

  api::Exchange& exchange = *std::get<std::unique_ptr<api::Exchange>>(outcome);
  ApiReply reply;
  if (exchange.streaming()) {
    reply.status = 200;
    reply.content_type = "text/event-stream; charset=utf-8";
  }
  std::string frames;
  for (bool last = false; !last;) {
    if (cancelled_) return kInterrupted;
    frames.clear();
    last = exchange.advance(frames);
    if (sink && !frames.empty())
      sink(frames);
    else
      reply.body += frames;
    if (!last) bell_->wait();
  }
  if (exchange.broken()) {
    if (!exchange.streaming())
      return Status(Code::kUnavailable, "the answer was cut off, as its script says");
    reply.broken = true;
  } else if (!exchange.streaming()) {
    reply = reply_of(exchange.response());
  }
  return reply;
}

void LocalServer::cancel() {
  cancelled_ = true;
  bell_->ring();
}

void LocalServer::resume() {
  cancelled_ = false;
}

}  // namespace invar
