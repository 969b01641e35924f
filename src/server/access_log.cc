#include "server/access_log.h"

#include <fmt/format.h>

#include "api/json_text.h"
#include "base/log.h"
#include "server/wall_time.h"

namespace invar::server {
namespace {

constexpr size_t kQueueBytes = 8 << 20;

}  // namespace

std::string access_line(const RequestRecord& r) {
  std::string out;
  const auto text = [&](std::string_view name, std::string_view value) {
    fmt::format_to(std::back_inserter(out), "{}\"{}\":", out.empty() ? "{" : ",", name);
    api::append_json_string(out, value);
  };
  const auto number = [&](std::string_view name, auto value) {
    fmt::format_to(std::back_inserter(out), ",\"{}\":{}", name, value);
  };
  const auto milliseconds = [&](std::string_view name, double value) {
    fmt::format_to(std::back_inserter(out), ",\"{}\":{:.3f}", name, value);
  };
  text("time", utc_text(r.unix_ns));
  text("id", r.id);
  text("remote", r.remote);
  text("method", r.method);
  text("path", r.path);
  number("status", r.status);
  milliseconds("ms", r.ms);
  number("bytes_in", r.bytes_in);
  number("bytes_out", r.bytes_out);
  if (r.key >= 0) number("key", r.key);
  if (r.facts.choices > 0) {
    text("model", r.model);
    number("choices", r.facts.choices);
    number("prompt_tokens", r.facts.prompt_tokens);
    number("cached_tokens", r.facts.cached_tokens);
    if (r.facts.prefix_end[0] != '\0') {
      text("prefix_end", r.facts.prefix_end);
      number("prefix_end_position", r.facts.prefix_end_position);
    }
    number("generated_tokens", r.facts.generated_tokens);
    if (r.facts.priority != 0) number("priority", r.facts.priority);
    if (r.facts.queued_ns >= 0) milliseconds("queue_ms", double(r.facts.queued_ns) * 1e-6);
    if (r.facts.preemptions > 0) number("preemptions", r.facts.preemptions);
    if (r.ttft_ms >= 0) milliseconds("ttft_ms", r.ttft_ms);
    text("finish", r.facts.finish);
  }
  text("outcome", r.outcome);
  if (!r.error.empty()) text("error", r.error);
  out.push_back('}');
  return out;
}

AccessLog::AccessLog(std::function<void(std::string_view)> sink)
    : lines_(kQueueBytes, [sink = std::move(sink)](std::vector<std::string>& lines, uint64_t lost) {
        for (const std::string& line : lines) {
          if (sink) {
            sink(line);
          } else {
            log_text(LogLevel::kInfo, line);
          }
        }
        if (lost > 0) log_warning("the access log was too slow: {} lines are missing", lost);
      }) {}

void AccessLog::write(const RequestRecord& record) {
  std::string line = access_line(record);
  const size_t bytes = line.size() + sizeof(line);
  lines_.push(std::move(line), bytes);
}

}  // namespace invar::server
