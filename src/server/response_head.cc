#include "server/response_head.h"

#include <fmt/format.h>

#include <ctime>

namespace invar::server {
namespace {

struct Phrase {
  int status;
  const char* text;
};
constexpr Phrase kPhrases[] = {
    {200, "OK"},
    {204, "No Content"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
};

void append_field(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ");
  for (const char c : value)
    out.push_back(c == '\r' || c == '\n' || c == '\0' ? ' ' : c);
  out.append("\r\n");
}

// RFC 9110, 5.6.7: "Sun, 06 Nov 1994 08:49:37 GMT". Made once per second and thread.
std::string_view date_text() {
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  thread_local time_t made = 0;
  thread_local std::string text;
  const time_t now = std::time(nullptr);
  if (now != made) {
    tm t{};
    gmtime_r(&now, &t);
    text = fmt::format("{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT", kDays[t.tm_wday], t.tm_mday,
                       kMonths[t.tm_mon], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
    made = now;
  }
  return text;
}

}  // namespace

const char* reason_phrase(int status) {
  for (const Phrase& phrase : kPhrases) {
    if (phrase.status == status) return phrase.text;
  }
  return "Status";
}

void append_head(std::string& out, const ResponseHead& head) {
  fmt::format_to(std::back_inserter(out), "HTTP/1.1 {} {}\r\nDate: {}\r\n", head.status,
                 reason_phrase(head.status), date_text());
  if (!head.content_type.empty()) append_field(out, "Content-Type", head.content_type);
  if (head.content_length) {
    fmt::format_to(std::back_inserter(out), "Content-Length: {}\r\n", *head.content_length);
  }
  if (head.chunked) out += "Transfer-Encoding: chunked\r\n";
  if (head.close) out += "Connection: close\r\n";
  for (const Fields* fields : head.more) {
    if (fields == nullptr) continue;
    for (const auto& [name, value] : *fields)
      append_field(out, name, value);
  }
  out += "\r\n";
}

void append_chunk(std::string& out, std::string_view bytes) {
  if (bytes.empty()) return;
  fmt::format_to(std::back_inserter(out), "{:x}\r\n", bytes.size());
  out.append(bytes).append("\r\n");
}

}  // namespace invar::server
