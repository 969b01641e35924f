#pragma once
// HttpCounters: what the server itself counts; one thread. And the page of /metrics, made of these and of the
// engine's snapshot.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include "engine/stats.h"
#include "server/request_record.h"

namespace invar::server {

struct HttpCounters {
  // Route pattern, method and status: few, since unknown paths are one route and unknown methods one method.
  std::map<std::tuple<std::string, std::string, int>, uint64_t> requests;
  uint64_t bytes_in = 0, bytes_out = 0;
  uint64_t connections_accepted = 0, connections_refused = 0;
  uint64_t slow_readers = 0;
  uint64_t prompt_tokens = 0, cached_tokens = 0;  // of requests that ended
  int64_t connections_open = 0;
  int64_t requests_open = 0;  // from the first byte of a head to the last of the answer

  void count(const RequestRecord& record);
};

std::string metrics_text(const HttpCounters& http, const EngineStats& engine, std::string_view model);

}  // namespace invar::server
