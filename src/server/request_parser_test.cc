#include "server/request_parser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace invar::server {
namespace {

using State = RequestParser::State;

constexpr std::string_view kHead = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

// Feeds the bytes `step` at a time.
void feed(RequestParser& parser, std::string_view bytes, size_t step) {
  size_t used = 0, there = 0;
  while (parser.state() == State::kHead || parser.state() == State::kBody) {
    const size_t n = parser.feed(bytes.substr(used, there - used));
    used += n;
    if (n == 0 && there == bytes.size()) return;
    if (n == 0) there = std::min(bytes.size(), there + step);
  }
}

TEST(RequestParser, line_that_ends_in_a_quoted_extension_is_refused_however_it_arrives) {
  Limits limits;
  limits.body_bytes = 256;
  for (const std::string_view chunk : {"31;a=\"b\r\n", "31;a=\"b\r\n0123456789", "31;a=\"b\r\n01234\"567",
                                       "0;a=\"b\r\n\r\n", "1\r\nx\r\n31;a=\"b\r\n"}) {
    const std::string bytes = std::string(kHead) + std::string(chunk);
    for (size_t step = 1; step <= bytes.size(); ++step) {
      RequestParser parser(limits);
      feed(parser, bytes, step);
      ASSERT_EQ(parser.state(), State::kFailed) << chunk << " in steps of " << step;
      EXPECT_EQ(parser.error().status, 400) << chunk << " in steps of " << step;
    }
  }
}

TEST(RequestParser, extensions_and_trailers_are_read_however_they_arrive) {
  const Limits limits;
  const std::string bytes =
      std::string(kHead) +
      "3;a=\"b c\";d\r\nabc\r\n00a ; e=f\r\n0123456789\r\n000;g=\"\\\"\"\r\nx: y\r\n\r\n";
  for (size_t step = 1; step <= bytes.size(); ++step) {
    RequestParser parser(limits);
    feed(parser, bytes, step);
    ASSERT_EQ(parser.state(), State::kDone) << "steps of " << step << ": " << parser.error().message;
    EXPECT_EQ(parser.body(), "abc0123456789");
  }
}

TEST(RequestParser, a_trailer_is_bounded_as_a_head_is_however_it_arrives) {
  Limits limits;
  limits.head_bytes = 300;
  const auto outcome = [&](size_t trailer_bytes, std::string_view space, size_t step) {
    RequestParser parser(limits);
    const std::string value(trailer_bytes - space.size() - 7, 'x');
    feed(parser, fmt::format("{}1\r\na\r\n0\r\nT:{}{}\r\n\r\n", kHead, space, value), step);
    return parser.state() == State::kFailed ? parser.error().status : int(parser.state() == State::kDone);
  };
  for (const size_t step : {size_t{1}, size_t{7}, size_t{100}, size_t{100'000}}) {
    for (const std::string_view space : {"", "                    "}) {
      EXPECT_EQ(outcome(280, space, step), 1) << step;
      EXPECT_EQ(outcome(320, space, step), 431) << step;
      EXPECT_EQ(outcome(40'000, space, step), 431) << step;
    }
  }
}

TEST(RequestParser, http_1_1_needs_one_host) {
  const auto status = [](std::string_view head) {
    const Limits limits;
    RequestParser parser(limits);
    feed(parser, head, head.size());
    return parser.state() == State::kDone ? 200 : parser.error().status;
  };
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost:\r\n\r\n"), 200);  // a unix socket has none
  EXPECT_EQ(status("GET / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nX: a\r\n\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.0\r\n\r\n"), 200);
}

}  // namespace
}  // namespace invar::server
