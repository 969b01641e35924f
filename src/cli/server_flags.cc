#include "cli/server_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "base/quote.h"
#include "cli/prompts.h"

namespace invar {
namespace {

constexpr size_t kMaxKeyFile = 1 << 20;

// What a client can send in a field of HTTP.
bool is_key(const std::string& key) {
  return !key.empty() &&
         std::all_of(key.begin(), key.end(), [](unsigned char c) { return c > 0x20 && c < 0x7F; });
}

}  // namespace

Result<std::vector<std::string>> api_keys_of(const std::string& value) {
  std::error_code ec;
  if (value.find('/') == std::string::npos && !std::filesystem::exists(value, ec)) {
    if (is_key(value)) {
      // "keys.txt" that was never made would be a key that anybody can guess.
      if (value.find('.') == std::string::npos) return std::vector<std::string>{value};
      return not_found(fmt::format(
          "--api-key {}: there is no such file; if it is the key itself, put it into a file", value));
    }
    return invalid_argument("--api-key: a key has visible ASCII characters only, and at least one");
  }
  auto text = read_text(value, kMaxKeyFile);
  if (!text.ok()) return text.status().with_context("--api-key");
  std::vector<std::string> keys;
  std::istringstream lines(*text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.starts_with('#')) continue;
    if (!is_key(line))
      return invalid_argument(fmt::format(
          "--api-key {}: line {} is no key (visible ASCII characters, one key per line)", value, number));
    keys.push_back(line);
  }
  if (keys.empty())
    return invalid_argument(fmt::format("--api-key {}: the file has no key; write one per line", value));
  return keys;
}

void ServerFlags::declare(Flags& flags) {
  flags.section("Listening");
  flags.text("--host", &options_.host, "ADDRESS",
             "address to listen on (default: 127.0.0.1, this machine only)");
  flags.integer("--port", &options_.port, "TCP port; 0 takes a free one (default: 8080)", 0, 65535);
  flags.text("--unix", &options_.unix_path, "PATH", "listen on this unix socket instead of TCP");
  flags.section("Access");
  flags.texts("--api-key", &keys_, "KEY|FILE",
              "clients must send this key; a file has one per line (may be given several times)");
  flags.texts("--cors-origin", &options_.cors_origins, "ORIGIN",
              "web pages of this origin may call the server; * = all (may be given several times)");
  flags.section("Limits");
  flags.integer("--max-connections", &options_.limits.connections, "connections at once (default: 4096)", 1,
                1 << 20);
  flags.bytes("--max-body", &max_body_, "bytes of one request's body (default: 32MiB)");
  flags.bytes("--max-pending", &max_pending_,
              "bytes that a slow reader may leave waiting before its stream ends (default: 1MiB)");
  flags.integer("--idle-timeout", &idle_s_, "seconds a connection may wait between requests (default: 75)", 1,
                86400);
  flags.integer("--request-timeout", &request_s_, "seconds for one request; 0 = no limit (default)", 0,
                30 * 86400);
  flags.integer("--ping", &ping_s_,
                "seconds of silence after which a stream gets a comment; 0 = never (default: 15)", 0, 3600);
  flags.section("Logs");
  flags.text("--request-log", &options_.request_log_dir, "DIR",
             "write every request and its answer there, for invar replay; contains prompts");
  flags.on("--quiet", &quiet_, "no line for each request");
}

Result<server::ServerOptions> ServerFlags::finish() const {
  server::ServerOptions o = options_;
  for (const std::string& value : keys_) {
    ASSIGN_OR_RETURN(const std::vector<std::string> keys, api_keys_of(value));
    o.api_keys.insert(o.api_keys.end(), keys.begin(), keys.end());
  }
  for (const std::string& origin : o.cors_origins)
    if (origin != "*" && (origin.find("://") == std::string::npos || origin.ends_with('/')))
      return invalid_argument(
          fmt::format("--cors-origin {}: an origin is a scheme and a host, such as https://example.com, or *",
                      quote(origin)));
  if (!o.unix_path.empty()) o.port = -1;
  if (max_body_ > 0) o.limits.body_bytes = max_body_;
  o.limits.all_bodies_bytes = std::max(o.limits.all_bodies_bytes, o.limits.body_bytes);
  if (max_pending_ > 0) o.limits.pending_stream_bytes = max_pending_;
  o.deadlines.idle_ms = int64_t{idle_s_} * 1000;
  o.deadlines.request_ms = int64_t{request_s_} * 1000;
  o.deadlines.ping_ms = int64_t{ping_s_} * 1000;
  o.access_sink = [quiet = quiet_](std::string_view line) {
    if (!quiet) fmt::print(stderr, "{}\n", line);
  };
  return o;
}

}  // namespace invar
