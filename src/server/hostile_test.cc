// Requests that are wrong, too large, too slow or meant to be read in two ways.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/testing/raw_client.h"
#include "server/testing/test_protocol.h"

namespace invar::server {
namespace {

using testing::Answer;
using testing::RawClient;
using testing::TestServer;

// A second request hides behind each of these: whoever disagrees about where the first one ends would run it.
constexpr const char* kHidden = "GET /items/hidden HTTP/1.1\r\nHost: x\r\n\r\n";

TEST(Hostile, ambiguous_requests_are_refused_and_the_connection_closes) {
  const std::string kBad[] = {
      // Two lengths.
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\nabcde",
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nabcde",
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 5\r\n\r\nabcde",
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5,6\r\n\r\nabcde",
      // Lengths that are none.
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nabcde",
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0x5\r\n\r\nabcde",
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5 5\r\n\r\nabcde",
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5e0\r\n\r\nabcde",
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: \"5\"\r\n\r\nabcde",
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551617\r\n\r\na",
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\na",
      // Transfer codings.
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
      "chunked\r\n\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: "
      "chunked\r\n\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n",
      "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \x0b"
      "chunked\r\n\r\n0\r\n\r\n",
      // Folded lines, odd line ends, odd names.
      "POST /echo HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\n Content-Length: 5\r\n\r\nabcde",
      "POST /echo HTTP/1.1\r\nHost: x\r\nX: a\rContent-Length: 5\r\n\r\nabcde",
      "POST /echo HTTP/1.1\r\nHost: x\r\nX: a\nContent-Length: 5\r\n\r\nabcde",
      "GET /health HTTP/1.1\nHost: x\n\n",
      "\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET /health HTTP/1.1\r\nHost: x\r\nX : y\r\n\r\n",
      "GET /health HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n",
      "GET /health HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
      "GET /health HTTP/1.1\r\nHost: x\r\nX(: y\r\n\r\n",
      "GET /health HTTP/1.1\r\nHost: x\r\nX: a\x01"
      "b\r\n\r\n",
      std::string("GET /health HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n", 41),
      "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
      "GET /health HTTP/1.1\r\n\r\n",
      // Request lines.
      "GET  /health HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET /health  HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET /health HTTP/1.1 \r\n\r\n",
      "GET /he alth HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET\t/health HTTP/1.1\r\nHost: x\r\n\r\n",
      " GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET /health\r\n\r\n",
      "GET /health http/1.1\r\n\r\n",
      "GET /health HTTP/1.2\r\n\r\n",
      "GET /health HTTP/2.0\r\n\r\n",
      "GET /health HTTP/0.9\r\n\r\n",
      "GET /health HTTP/1.11\r\n\r\n",
      "G(T /health HTTP/1.1\r\nHost: x\r\n\r\n",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
      // Chunks.
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nabcde\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\ng\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n 5\r\nabcde\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcdef\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n\r\nabcde\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
      "chunked\r\n\r\n5\r\nabcde\r\n0\r\nContent-Length: 3\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\rX\nabcde\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;x=\"\n\"\r\nabcde\r\n0\r\n\r\n",
  };
  TestServer server;
  for (const std::string& bad : kBad) {
    RawClient client(server.port());
    client.send(bad + kHidden);
    const Answer answer = client.read_answer();
    EXPECT_EQ(answer.status, 400) << bad;
    EXPECT_EQ(answer.field("connection"), "close") << bad;
    EXPECT_TRUE(client.at_end()) << bad;
  }
  EXPECT_EQ(RawClient(server.port()).ask("GET /health HTTP/1.1\r\nHost: x\r\n\r\n").status, 200);
}

TEST(Hostile, chunk_sizes_beyond_the_limit_are_refused_before_they_come) {
  TestServer server;
  for (const char* size : {"ffffffffffffffff", "fffffffffffffffff", "7fffffff", "3000000"}) {
    RawClient client(server.port());
    client.send(
        fmt::format("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{}\r\nabc", size));
    const int status = client.read_answer().status;
    EXPECT_EQ(status, std::string_view(size).size() > 16 ? 400 : 413) << size;
  }
}

TEST(Hostile, large_heads_and_many_fields_are_refused) {
  ServerOptions options;
  options.limits.head_bytes = 4096;
  options.limits.head_fields = 20;
  TestServer server(options);
  const auto status = [&](const std::string& request) {
    RawClient client(server.port());
    client.send(request);
    return client.read_answer().status;
  };
  std::string fields;
  for (int i = 0; i < 19; i++)
    fields += fmt::format("X{}: y\r\n", i);
  EXPECT_EQ(status("GET /health HTTP/1.1\r\nHost: x\r\n" + fields + "\r\n"), 200);
  EXPECT_EQ(status("GET /health HTTP/1.1\r\nHost: x\r\nOne: more\r\n" + fields + "\r\n"), 431);
  EXPECT_EQ(status("GET /health HTTP/1.1\r\nHost: x\r\nX: " + std::string(4000, 'x') + "\r\n\r\n"), 200);
  EXPECT_EQ(status("GET /health HTTP/1.1\r\nHost: x\r\nX: " + std::string(4100, 'x') + "\r\n\r\n"), 431);
  EXPECT_EQ(status("GET /" + std::string(100'000, 'x')), 431);
  const std::string chunked =
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n";
  EXPECT_EQ(status(chunked + "0\r\nT: " + std::string(100'000, 'x')), 431);
  EXPECT_EQ(status(chunked + "0\r\nT: " + std::string(4100, 'x') + "\r\n\r\n"), 431);
  EXPECT_EQ(status(chunked + "0\r\nOne: more\r\nTwo: more\r\n" + fields + "\r\n"), 431);
  EXPECT_EQ(status(chunked + "1;" + std::string(100'000, 'x')), 431);
}

TEST(Hostile, a_large_body_is_refused_early_and_the_answer_still_arrives) {
  ServerOptions options;
  options.limits.body_bytes = 100'000;
  options.deadlines.linger_ms = 60'000;  // a busy machine needs its time for 50 MB
  TestServer server(options);
  // The client only looks when it has sent everything, as simple ones do.
  const std::string body(50 << 20, 'x');
  for (const bool chunked : {false, true}) {
    RawClient client(server.port());
    client.send(
        chunked ? fmt::format("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n",
                              body.size())
                : fmt::format("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.size()));
    EXPECT_TRUE(client.send(body));
    const Answer answer = client.read_answer();
    EXPECT_EQ(answer.status, 413);
    EXPECT_TRUE(client.at_end());
  }
  RawClient client(server.port());
  EXPECT_EQ(
      client
          .ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + std::string(100'000, 'y'))
          .body,
      std::string(100'000, 'y'));
}

TEST(Hostile, all_bodies_together_are_bounded) {
  ServerOptions options;
  options.limits.all_bodies_bytes = 1000;
  TestServer server(options);
  RawClient first(server.port()), second(server.port());
  first.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 901\r\n\r\n" + std::string(900, 'a'));
  // Its 900 bytes came with its head; the page's own request is the other one that is open.
  std::string page;
  for (int i = 0; i < 10'000 && page.find("invar_http_requests_open 2\n") == std::string::npos; i++) {
    page = second.ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").body;
  }
  const Answer answer =
      RawClient(server.port())
          .ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 200\r\n\r\n" + std::string(200, 'b'));
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.field("retry-after"), "1");
  first.send("a");
  EXPECT_EQ(first.read_answer().body, std::string(901, 'a'));
  EXPECT_EQ(
      second.ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 200\r\n\r\n" + std::string(200, 'b'))
          .status,
      200);
}

TEST(Hostile, slow_heads_and_bodies_end_at_their_deadline) {
  ServerOptions options;
  options.deadlines.head_ms = 50;
  options.deadlines.body_ms = 50;
  TestServer server(options);
  for (const char* part : {"GET /hea", "GET /health HTTP/1.1\r\nHost: x\r\n",
                           "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab",
                           "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"}) {
    RawClient client(server.port());
    client.send(part);
    const Answer answer = client.read_answer();
    EXPECT_EQ(answer.status, 408) << part;
    EXPECT_TRUE(client.at_end());
  }
}

TEST(Hostile, what_cannot_begin_a_request_is_refused_at_its_first_byte) {
  ServerOptions options;
  options.deadlines.head_ms = 60'000;
  TestServer server(options);
  // None of them is complete in any way; the client waits for what we say.
  for (const std::string& bad :
       {std::string("\0", 1), std::string("\x7f"), std::string("\xff\xfe"), std::string("\x80\x2e\x01"),
        std::string(" "), std::string("{\"a\""), std::string("\r\n\0", 3), std::string("\r "),
        std::string("GE\xc3"), std::string("GET\0/", 5), std::string("GET/"), std::string("@RSYNCD")}) {
    RawClient client(server.port());
    client.send(bad);
    const Answer answer = client.read_answer();
    EXPECT_EQ(answer.status, 400) << bad;
    EXPECT_EQ(answer.field("connection"), "close") << bad;
    EXPECT_NE(answer.body.find("method"), std::string::npos) << answer.body;
    EXPECT_TRUE(client.at_end()) << bad;
  }
}

TEST(Hostile, a_tls_client_is_told_that_this_is_plain_http) {
  ServerOptions options;
  options.deadlines.head_ms = 60'000;
  TestServer server(options);
  for (const std::string& hello :
       {std::string("\x16"), std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11)}) {
    RawClient client(server.port());
    client.send(hello);
    const Answer answer = client.read_answer();
    EXPECT_EQ(answer.status, 400);
    EXPECT_NE(answer.body.find("plain HTTP"), std::string::npos) << answer.body;
    EXPECT_TRUE(client.at_end());
  }
}

TEST(Hostile, dripping_bytes_do_not_move_a_deadline) {
  ServerOptions options;
  options.deadlines.head_ms = 200;
  TestServer server(options);
  RawClient client(server.port());
  client.send("GET /health HTTP/1.1\r\nHost: x\r\nX: ");
  const int64_t start = now_ns();
  pollfd readable{client.fd(), POLLIN, 0};
  while (::poll(&readable, 1, 5) == 0 && now_ns() - start < 10'000'000'000)
    client.send("x");
  EXPECT_EQ(client.read_answer().status, 408);
  EXPECT_GE(now_ns() - start, 150'000'000);
}

TEST(Hostile, idle_connections_close_without_an_answer) {
  ServerOptions options;
  options.deadlines.idle_ms = 50;
  TestServer server(options);
  RawClient fresh(server.port()), used(server.port());
  EXPECT_EQ(used.ask("GET /health HTTP/1.1\r\nHost: x\r\n\r\n").status, 200);
  EXPECT_TRUE(fresh.at_end());
  EXPECT_TRUE(used.at_end());
  EXPECT_FALSE(used.was_reset());
}

TEST(Hostile, connections_above_the_limit_are_told_so) {
  ServerOptions options;
  options.limits.connections = 3;
  TestServer server(options);
  RawClient a(server.port()), b(server.port()), c(server.port());
  for (RawClient* client : {&a, &b, &c})
    EXPECT_EQ(client->ask("GET /health HTTP/1.1\r\nHost: x\r\n\r\n").status, 200);
  for (int i = 0; i < 100; i++) {
    RawClient above(server.port());
    above.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    const Answer answer = above.read_answer();
    ASSERT_EQ(answer.status, 503);
    ASSERT_NE(answer.body.find("too_many_connections"), std::string::npos) << answer.body;
  }
  a.close();
  int status = 0;
  for (int i = 0; i < 1000 && status != 200; i++)
    status = RawClient(server.port()).ask("GET /health HTTP/1.1\r\nHost: x\r\n\r\n").status;
  EXPECT_EQ(status, 200);
}

}  // namespace
}  // namespace invar::server
