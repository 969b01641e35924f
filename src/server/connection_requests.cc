#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <boost/json.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "base/trace.h"
#include "server/connection.h"
#include "server/wall_time.h"

namespace invar::server {
namespace {

namespace asio = boost::asio;

constexpr int64_t kMillisecond = 1'000'000;
constexpr std::string_view kBuiltInMethods = "GET, HEAD, OPTIONS";
constexpr std::string_view kAllMethods = "GET, HEAD, POST, OPTIONS";

// The protocol that words errors where no path says which one.
const api::Protocol& default_protocol(const Context& context) {
  return *context.router("GET", "/").protocol;
}

std::string_view routed_method(std::string_view method) {
  return method == "HEAD" ? "GET" : method;
}

BuiltIn built_in_of(std::string_view path) {
  if (path == "/health") return BuiltIn::kHealth;
  if (path == "/metrics") return BuiltIn::kMetrics;
  return BuiltIn::kNone;
}

bool is_compressed(const RequestHead& head) {
  const std::string* coding = head.find("content-encoding");
  return coding != nullptr && !coding->empty() && !equal_ignoring_case(*coding, "identity");
}

// For the request log: without what lets somebody in, wherever a client puts it.
std::string public_head(const RequestHead& head, const ApiKeys& keys) {
  const std::string_view target = keys.mentioned_in(head.target)
                                      ? std::string_view(head.target).substr(0, head.target.find('?'))
                                      : std::string_view(head.target);
  std::string out = fmt::format("{} {} HTTP/1.{}\r\n", head.method, target, head.minor_version);
  for (const auto& [name, value] : head.fields) {
    if (name == "authorization" || name == "x-api-key" || name == "cookie" || name == "proxy-authorization")
      continue;
    if (keys.mentioned_in(value)) continue;
    out.append(name).append(": ").append(value).append("\r\n");
  }
  return out;
}

// On a worker. Nothing that a handler throws may end the server.
api::Outcome run_handler(const api::Service& service, const api::Request& request, const api::Match& match,
                         std::function<void()> notify) {
  Traced span("handle", SpanKind::kHandler);
  try {
    return match.route->handle({service, request, match.parameter, std::move(notify)});
  } catch (const std::bad_alloc&) {
    return match.protocol->error({503, "not enough memory for this request", "", "out_of_memory"});
  } catch (const std::exception& e) {
    log_error("{} {}: {}", request.method, request.path, e.what());
    return match.protocol->error({500, "internal error; the server's log says more", "", "internal_error"});
  }
}

}  // namespace

void Connection::refuse() {
  refused_ = true;
  context_.refused_connections++;
  begin_request();
  work_->close = true;
  refuse_request({503,
                  fmt::format("{} connections are open, and that is the limit of this server",
                              context_.options.limits.connections),
                  "", "too_many_connections"},
                 {{"Retry-After", "1"}});
}

// Reads requests until one needs an answer first, or bytes are missing. Called again when it was answered.
void Connection::pump(std::string_view fresh) {
  if (pumping_) return;
  pumping_ = true;
  const auto self = shared_from_this();
  // Bytes that can be used at once are never copied into input_.
  const bool copied = !input_.empty();
  if (copied) input_.append(fresh);
  std::string_view unread = copied ? std::string_view(input_) : fresh;

  while (phase_ == Phase::kHead || phase_ == Phase::kBody) {
    if (work_ == nullptr) {
      while (unread.starts_with("\r\n"))
        unread.remove_prefix(2);  // RFC 9112, 2.2
      if (unread.empty() || unread == "\r") break;
      begin_request();
    }
    RequestParser& parser = work_->parser;
    const size_t used = parser.feed(unread);
    unread.remove_prefix(used);
    work_->record.bytes_in += used;
    const RequestParser::State state = parser.state();
    if (state == RequestParser::State::kFailed) {
      work_->close = true;
      refuse_request({parser.error().status, parser.error().message, "", "bad_request"});
    } else if (state == RequestParser::State::kHead) {
      break;
    } else if (phase_ == Phase::kHead) {
      set_phase(Phase::kBody, context_.options.deadlines.body_ms);
      judge_head();
    } else if (account_body()) {
      if (state == RequestParser::State::kDone) {
        dispatch();
      } else if (used == 0 || unread.empty()) {
        break;
      }
    }
  }

  pumping_ = false;
  if (phase_ == Phase::kClosed || phase_ == Phase::kLingering) return;
  if (copied) {
    input_.erase(0, input_.size() - unread.size());
  } else {
    input_.assign(unread);
  }
  if (input_.empty() && input_.capacity() > 64) input_.shrink_to_fit();
  if (eof_ && (phase_ == Phase::kHead || phase_ == Phase::kBody)) return close("client gone");
  update_read();
}

void Connection::begin_request() {
  const uint64_t serial = context_.next_serial++;
  work_ = std::make_unique<Work>(context_.options.limits, serial);
  work_->start_ns = now_ns();
  work_->record.id = fmt::format("{}{:08x}", context_.id_prefix, serial);
  work_->record.unix_ns = unix_now_ns();
  work_->record.remote = remote_;
  work_->record.route = "other";
  context_.counters.requests_open++;
  const int64_t request_ms = context_.options.deadlines.request_ms;
  if (request_ms > 0) work_->deadline = work_->start_ns + request_ms * kMillisecond;
  set_phase(Phase::kHead, context_.options.deadlines.head_ms);
}

// All bodies together have a bound. False: it was reached, and the request is refused.
bool Connection::account_body() {
  const size_t bytes = work_->parser.body().size();
  context_.body_bytes += bytes - work_->body_bytes;
  work_->body_bytes = bytes;
  if (context_.body_bytes <= context_.options.limits.all_bodies_bytes) return true;
  work_->close = true;
  refuse_request({503, "too many large requests at once; try again", "", "overloaded"},
                 {{"Retry-After", "1"}});
  return false;
}

// Everything that can be said before the body is there.
void Connection::judge_head() {
  Work& work = *work_;
  const RequestHead& head = work.parser.head();
  const Limits& limits = context_.options.limits;
  work.target = parse_target(head.target);
  work.head_only = head.method == "HEAD";
  work.close = !head.keep_alive || context_.draining;
  work.built_in = built_in_of(work.target.path);
  work.match = context_.router(routed_method(head.method), work.target.path);
  if (work.built_in != BuiltIn::kNone) work.match.allowed = kBuiltInMethods;
  work.record.method = head.method;
  work.record.path = work.target.path;
  if (work.built_in != BuiltIn::kNone) {
    work.record.route = work.target.path;
  } else if (work.match.route != nullptr) {
    work.record.route = work.match.route->path;
  }
  context_.cors.add_fields(head, work.fields);

  const std::string* expect = head.minor_version >= 1 ? head.find("expect") : nullptr;
  const bool continues = expect != nullptr && equal_ignoring_case(*expect, "100-continue");
  const auto reject = [&](int status, std::string message, std::string code, Fields more = {}) {
    if (work.rejection) return;
    work.rejection = work.match.protocol->error({status, std::move(message), "", std::move(code)});
    for (auto& field : more)
      work.rejection->headers.push_back(std::move(field));
  };

  if (context_.draining) {
    reject(503, "the server is shutting down", "shutting_down", {{"Retry-After", "5"}});
  }
  if (expect != nullptr && !continues) reject(417, "Expect: only 100-continue is understood", "bad_expect");
  if (head.method != "OPTIONS") {
    if (context_.keys.required() && work.built_in != BuiltIn::kHealth) {
      work.record.key = context_.keys.find(head);
      if (work.record.key < 0) {
        const bool given = head.find("authorization") != nullptr || head.find("x-api-key") != nullptr;
        reject(401,
               given ? "this API key is not one of the server's"
                     : "an API key is needed: Authorization: Bearer KEY, or x-api-key: KEY",
               "invalid_api_key", {{"WWW-Authenticate", "Bearer"}});
      }
    }
    if (work.match.allowed.empty()) reject(404, "there is no such path", "unknown_path");
    const bool method_fits =
        work.built_in != BuiltIn::kNone ? routed_method(head.method) == "GET" : work.match.route != nullptr;
    if (!method_fits) {
      reject(405, fmt::format("this path has {}", work.match.allowed), "method_not_allowed",
             {{"Allow", work.match.allowed}});
    }
  }
  if (is_compressed(head)) reject(415, "compressed bodies are not accepted", "unsupported_encoding");
  if (head.content_length.value_or(0) > limits.body_bytes) {
    reject(413, fmt::format("the body is larger than {} bytes", limits.body_bytes), "body_too_large");
  }

  if (!head.has_body()) return;
  if (work.rejection) {
    // A small body is on its way already, unless its client waits; taking it keeps the connection.
    work.parser.discard_body();
    if (head.chunked || expect != nullptr || *head.content_length > limits.kept_rejected_body) {
      work.close = true;
      answer(std::move(*std::exchange(work.rejection, std::nullopt)));
    }
  } else if (continues) {
    output() += "HTTP/1.1 100 Continue\r\n\r\n";
    flush();
  }
}

void Connection::refuse_request(const api::Error& error, Fields more) {
  const api::Protocol* protocol = work_->match.protocol;
  if (protocol == nullptr) protocol = &default_protocol(context_);
  api::Response response = protocol->error(error);
  for (auto& field : more)
    response.headers.push_back(std::move(field));
  answer(std::move(response));
}

// The request is whole.
void Connection::dispatch() {
  Work& work = *work_;
  const RequestHead& head = work.parser.head();
  if (context_.request_log != nullptr && work.built_in == BuiltIn::kNone) {
    context_.request_log->request(work.record, public_head(head, context_.keys), work.parser.body());
    work.logged = true;
  }
  if (work.rejection) return answer(std::move(*std::exchange(work.rejection, std::nullopt)));
  if (head.method == "OPTIONS") return answer_options();
  if (work.built_in == BuiltIn::kHealth) {
    if (const Status fault = context_.service.fault(); !fault.ok())
      return answer({503, boost::json::serialize(
                              boost::json::object{{"status", "error"}, {"message", fault.message()}})});
    return answer({200, R"({"status":"ok"})"});
  }
  if (work.built_in == BuiltIn::kMetrics) return answer(metrics());

  set_phase(Phase::kHandling, 0);
  work.waker = std::make_shared<Waker>(context_.loop, weak_from_this(), work.serial);
  auto request = std::make_shared<api::Request>();
  request->method = routed_method(head.method);
  request->path = work.target.path;
  request->query = work.target.query;
  request->body = std::move(work.parser.body());
  request->id = work.record.id;
  request->tenant = uint64_t(work.record.key + 1);
  asio::post(context_.workers, [&service = context_.service, request = std::move(request), match = work.match,
                                waker = work.waker]() mutable {
    api::Outcome outcome = run_handler(service, *request, match, [waker] { waker->notify(); });
    request = nullptr;
    // It goes back to the I/O thread even if nobody waits for it there: an exchange belongs to that thread.
    const Waker& way = *waker;
    asio::post(way.loop->io, [waker = std::move(waker), outcome = std::move(outcome)]() mutable {
      if (const auto connection = waker->connection.lock()) {
        connection->on_outcome(waker->serial, std::move(outcome));
      }
    });
  });
}

void Connection::answer_options() {
  Work& work = *work_;
  if (work.target.path == "*") work.match.allowed = kAllMethods;
  if (work.match.allowed.empty()) return refuse_request({404, "there is no such path", "", "unknown_path"});
  api::Response response;
  response.status = 204;
  response.content_type.clear();
  response.headers.emplace_back("Allow", work.match.allowed);
  context_.cors.add_preflight_fields(work.parser.head(), work.match.allowed, work.fields);
  answer(std::move(response));
}

api::Response Connection::metrics() const {
  const std::string model = context_.service.model_names.empty() ? "" : context_.service.model_names.front();
  const EngineStats stats = context_.stats ? context_.stats() : EngineStats{};
  return {200, metrics_text(context_.counters, stats, model), "text/plain; version=0.0.4; charset=utf-8"};
}

}  // namespace invar::server
