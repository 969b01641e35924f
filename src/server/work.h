#pragma once
// Work: the request that a connection is busy with, from its first byte to the last of its answer. And Waker,
// the way back from the engine thread to it.

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "api/protocol.h"
#include "server/context.h"
#include "server/request_parser.h"
#include "server/request_record.h"

namespace invar::server {

// Any number of calls from any thread become one visit of the I/O thread. May outlive connection and server.
struct Waker : std::enable_shared_from_this<Waker> {
  Waker(std::shared_ptr<Loop> l, std::weak_ptr<Connection> c, uint64_t s)
      : loop(std::move(l)), connection(std::move(c)), serial(s) {}
  void notify();

  const std::shared_ptr<Loop> loop;
  const std::weak_ptr<Connection> connection;
  const uint64_t serial;
  std::atomic<bool> pending{false};
};

enum class BuiltIn { kNone, kHealth, kMetrics };

struct Work {
  Work(const Limits& limits, uint64_t s) : parser(limits), serial(s) {}

  RequestParser parser;
  const uint64_t serial;  // of all requests of this server
  int64_t start_ns = 0;
  int64_t deadline = 0;      // of the whole request; 0 = none
  int64_t fin_deadline = 0;  // 0 = none
  int64_t ping_at = 0;       // 0 = none

  Target target;
  BuiltIn built_in = BuiltIn::kNone;
  api::Match match{};
  std::optional<api::Response> rejection;  // decided by the head; sent when a small body is through
  Fields fields;                           // of ours, for the answer
  bool close = false;                      // after this answer
  bool head_only = false;                  // HEAD

  size_t body_bytes = 0;  // of Context::body_bytes
  std::shared_ptr<Waker> waker;
  std::unique_ptr<api::Exchange> exchange;
  bool streaming = false;     // the head of a stream was sent
  size_t largest_frames = 0;  // of a stream: bytes that came at once
  bool logged = false;        // is in the request log

  RequestRecord record;
};

}  // namespace invar::server
