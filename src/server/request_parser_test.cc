#include "server/request_parser.h"

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

}  // namespace
}  // namespace invar::server
