#pragma once
// A protocol whose answers a test decides: POST /echo gives the body back, POST /stream and POST /wait make
// an exchange that the test feeds through a Feed, POST /busy is 429 (with the body as Retry-After, if there
// is one), POST /throw fails in the handler. No model, no JSON.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

#include "api/protocol.h"
#include "api/service.h"
#include "server/server.h"

namespace invar::server::testing {

// The engine's side of one exchange. Any thread.
class Feed {
 public:
  void push(std::string frame, bool last = false) {
    {
      std::lock_guard lock(mutex_);
      frames_.push_back(std::move(frame));
      last_ = last_ || last;
    }
    notify_();
  }
  void finish() { push("", true); }
  // The exchange ends as one that wants its connection cut off.
  void break_off(std::string frame) {
    broken_ = true;
    push(std::move(frame), true);
  }
  // The exchange throws when it is asked next: for its news, or for its answer.
  enum class Throw { kNever, kAdvance, kResponse };
  void fail(Throw where) {
    throw_ = where;
    push("", where == Throw::kResponse);
  }
  bool dropped() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return dropped_; });
  }
  bool is_dropped_now() {
    std::lock_guard lock(mutex_);
    return dropped_;
  }
  std::string request_body;

 private:
  friend class TestExchange;
  friend class Feeds;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> frames_;
  bool last_ = false, dropped_ = false;
  std::atomic<bool> broken_{false};
  std::atomic<Throw> throw_{Throw::kNever};
  std::function<void()> notify_;
};

// Feeds of the exchanges that were made, in order.
class Feeds {
 public:
  static Feeds& instance() {
    static Feeds feeds;
    return feeds;
  }
  std::shared_ptr<Feed> add(const api::Call& call) {
    auto feed = std::make_shared<Feed>();
    feed->notify_ = call.notify;
    feed->request_body = call.request.body;
    std::lock_guard lock(mutex_);
    made_.push_back(feed);
    changed_.notify_all();
    return feed;
  }
  // The next one that was made and not taken yet; nullptr: none comes.
  std::shared_ptr<Feed> take() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(10), [&] { return !made_.empty(); })) return nullptr;
    auto feed = made_.front();
    made_.pop_front();
    return feed;
  }
  void clear() {
    std::lock_guard lock(mutex_);
    made_.clear();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Feed>> made_;
};

class TestExchange : public api::Exchange {
 public:
  TestExchange(std::shared_ptr<Feed> feed, bool streaming) : feed_(std::move(feed)), streaming_(streaming) {}
  ~TestExchange() override {
    std::lock_guard lock(feed_->mutex_);
    feed_->dropped_ = true;
    feed_->changed_.notify_all();
  }
  bool streaming() const override { return streaming_; }
  bool advance(std::string& out) override {
    std::lock_guard lock(feed_->mutex_);
    for (std::string& frame : feed_->frames_)
      (streaming_ ? out : body_) += frame;
    feed_->frames_.clear();
    if (feed_->throw_ == Feed::Throw::kAdvance) throw std::runtime_error("on purpose");
    return feed_->last_;
  }
  bool broken() const override { return feed_->broken_; }
  api::Response response() override {
    if (feed_->throw_ == Feed::Throw::kResponse) throw std::runtime_error("on purpose");
    return {200, body_, "text/plain"};
  }
  std::string error_frame(const api::Error& why) override { return "data: error " + why.message + "\n\n"; }
  api::ExchangeFacts facts() const override {
    return {.choices = 1,
            .prompt_tokens = 7,
            .cached_tokens = 3,
            .generated_tokens = 2,
            .first_token_ns = now_ns(),
            .last_token_ns = now_ns(),
            .queued_ns = 1'500'000,
            .preemptions = 4,
            .priority = -2,
            .finish = "stop"};
  }

 private:
  std::shared_ptr<Feed> feed_;
  const bool streaming_;
  std::string body_;
};

inline api::Response test_error(const api::Error& error) {
  return {error.status, "error " + error.code + ": " + error.message, "text/plain"};
}

inline constexpr api::Route kTestRoutes[] = {
    {"POST", "/echo",
     [](const api::Call& call) -> api::Outcome {
       return api::Response{200, call.request.body, "text/plain"};
     }},
    {"GET", "/items/{id}",
     [](const api::Call& call) -> api::Outcome {
       return api::Response{200, "item " + call.parameter + " ?" + call.request.query, "text/plain"};
     }},
    {"POST", "/stream",
     [](const api::Call& call) -> api::Outcome {
       return std::make_unique<TestExchange>(Feeds::instance().add(call), true);
     }},
    {"POST", "/wait",
     [](const api::Call& call) -> api::Outcome {
       return std::make_unique<TestExchange>(Feeds::instance().add(call), false);
     }},
    {"POST", "/busy",
     [](const api::Call& call) -> api::Outcome {
       api::Response response{429, "busy", "text/plain"};
       if (!call.request.body.empty()) response.headers = {{"Retry-After", call.request.body}};
       return response;
     }},
    {"POST", "/throw", [](const api::Call&) -> api::Outcome { throw std::runtime_error("on purpose"); }},
};
inline const api::Protocol kTestProtocol{"test", kTestRoutes, test_error};

inline api::Match test_router(std::string_view method, std::string_view path) {
  api::Match match{&kTestProtocol};
  for (const api::Route& route : kTestRoutes) {
    const std::string_view pattern = route.path;
    const size_t brace = pattern.find('{');
    if (brace == std::string_view::npos
            ? path != pattern
            : !path.starts_with(pattern.substr(0, brace)) || path.size() == brace) {
      continue;
    }
    match.allowed = route.method == std::string_view("GET") ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
    if (method != route.method) continue;
    match.route = &route;
    if (brace != std::string_view::npos) match.parameter = path.substr(brace);
  }
  return match;
}

// A server on a free port of the loopback interface, with its thread.
class TestServer {
 public:
  explicit TestServer(ServerOptions options = {}, Server::Stats stats = {}) {
    Feeds::instance().clear();
    options.port = 0;
    if (!options.access_sink) options.access_sink = [](std::string_view) {};
    service_.model_names = {"test-model"};
    service_.predicted_wait_s = [this] { return predicted_wait_s.load(); };
    service_.fault = [this] { return faulty ? Status(Code::kUnavailable, "the test says so") : Status(); };
    auto endpoint = Endpoint::open(options);
    CHECK(endpoint.ok());
    server_ = std::make_unique<Server>(std::move(*endpoint), service_, test_router, std::move(stats));
    thread_ = std::thread([this] { server_->run(); });
  }
  ~TestServer() { stop(); }

  // Returns when run() has; what was queued for the logs is written.
  void stop() {
    if (!thread_.joinable()) return;
    server_->stop_now();
    thread_.join();
    server_ = nullptr;
  }
  // The same, but waits for what is in progress.
  void wait_for_drain() {
    thread_.join();
    server_ = nullptr;
  }
  Server& operator*() { return *server_; }
  Server* operator->() { return server_.get(); }
  uint16_t port() const { return server_->port(); }

  std::atomic<double> predicted_wait_s{0};
  std::atomic<bool> faulty{false};

 private:
  api::Service service_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

}  // namespace invar::server::testing
