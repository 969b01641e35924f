#pragma once
// Protocols: how a request's bytes become a generation, and a generation's events become bytes. Knows no
// sockets and no engine. A protocol is one file and one line in protocols.cc.
//
// Threads: Route::handle runs on a worker (parsing, rendering and tokenizing take time); the Exchange it
// returns belongs to the connection's thread.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "engine/stream.h"

namespace invar::api {

struct Service;

struct Request {
  std::string method;  // HEAD arrives as GET
  std::string path;    // percent-decoded, without the query
  std::string query;   // as sent
  std::string body;
  std::string id;       // x-request-id
  uint64_t tenant = 0;  // whose key was given, from 1; 0 = the server has no keys
};

// An error in words; each protocol gives it its own shape.
struct Error {
  int status;           // HTTP
  std::string message;  // names the field and what to do
  std::string param;    // the field, "" = none
  std::string code;     // machine-readable, "" = none: "context_length_exceeded", "model_not_found"
};

struct Response {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;  // further ones, say Retry-After
  std::string error;                                         // of an error, for the log: loggable()
};

// What an exchange did, for the log. Times: now_ns(), 0 = not yet.
struct ExchangeFacts {
  int32_t choices = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  int64_t first_token_ns = 0, last_token_ns = 0;
  int64_t queued_ns = -1;   // until a step had the first prompt; -1 = none had
  int32_t preemptions = 0;  // of all choices
  int32_t priority = 0;
  std::string finish;  // finish reasons of the choices, each once, comma separated
  // Of the first prompt: why no more of it was found in the prefix cache, and where that was.
  const char* prefix_end = "";
  int32_t prefix_end_position = 0;
};

// A request that generates. Dropping it cancels its streams.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // True: frames go out as they come (text/event-stream). False: one body at the end.
  virtual bool streaming() const = 0;
  // Takes the events that are there, never blocks; when streaming, appends the frames they make to `out`.
  // True once nothing more will come.
  virtual bool advance(std::string& out) = 0;
  // The answer of a request that does not stream; after advance() was true, once.
  virtual Response response() = 0;
  // The last frame of a stream that the server ends itself (say at its deadline), before it drops this.
  virtual std::string error_frame(const Error& why) = 0;
  virtual ExchangeFacts facts() const = 0;
  // After advance() was true: the connection is to be cut off without an end, as by a crash. Only scripted
  // answers ask for it.
  virtual bool broken() const { return false; }
};

using Outcome = std::variant<Response, std::unique_ptr<Exchange>>;

struct Call {
  const Service& service;  // outlives the exchange
  const Request& request;  // only during the call
  std::string parameter;   // what "{id}" stands for in the path
  // Called on the engine thread when a stream of the exchange has news; must not block. May be called after
  // the exchange is gone.
  std::function<void()> notify;
};

struct Route {
  const char* method;  // GET or POST
  const char* path;    // "/v1/models/{id}": the parameter is the rest of the path
  Outcome (*handle)(const Call& call);
};

// What the log says of it: the code or the field where the message may repeat what a client sent, else the
// message.
std::string loggable(const Error& error);
// kInvalidArgument, kNotFound, kUnsupported: 400; kResourceExhausted: 429; kUnavailable: 503; kCancelled:
// 499; the rest: 500.
Error error_of(const Status& status);

struct Protocol {
  const char* name;
  std::span<const Route> routes;
  Response (*error)(const Error& error);
};
std::span<const Protocol> protocols();

// Which route a path has. `protocol` is set for unknown paths too (the first one: it words the 404).
struct Match {
  const Protocol* protocol;
  const Route* route = nullptr;  // nullptr: no such path, or none with this method
  std::string parameter;
  std::string allowed;  // methods of the path, "GET, HEAD, OPTIONS"; "" = unknown path
};
Match find_route(std::string_view method, std::string_view path);

}  // namespace invar::api
