// What every HTTP/1 client may rely on: framing, keep-alive, pipelining, methods, routes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/testing/raw_client.h"
#include "server/testing/test_protocol.h"

namespace invar::server {
namespace {

using testing::Answer;
using testing::RawClient;
using testing::TestServer;

std::string post(std::string_view path, std::string_view body, std::string_view more = "") {
  return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n{}\r\n{}", path, body.size(), more,
                     body);
}

TEST(Http, health_answers_and_the_connection_stays) {
  TestServer server;
  RawClient client(server.port());
  for (int i = 0; i < 3; i++) {
    const Answer answer = client.ask("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, R"({"status":"ok"})");
    EXPECT_EQ(answer.field("content-type"), "application/json");
    EXPECT_FALSE(answer.fields.contains("connection"));
    EXPECT_TRUE(answer.fields.contains("date"));
  }
}

TEST(Http, connection_close_is_obeyed) {
  TestServer server;
  RawClient client(server.port());
  const Answer answer = client.ask("GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.field("connection"), "close");
  EXPECT_TRUE(client.at_end());
}

TEST(Http, body_arrives_and_every_answer_has_its_own_request_id) {
  TestServer server;
  RawClient client(server.port());
  const std::string body("a\0b\r\n\r\nGET / HTTP/1.1", 21);
  const Answer first = client.ask(post("/echo", body)), second = client.ask(post("/echo", "2"));
  EXPECT_EQ(first.body, body);
  EXPECT_EQ(second.body, "2");
  EXPECT_NE(first.field("x-request-id"), second.field("x-request-id"));
}

TEST(Http, requests_split_at_every_byte_are_understood) {
  TestServer server;
  RawClient client(server.port());
  const int on = 1;
  ::setsockopt(client.fd(), IPPROTO_TCP, 1 /* TCP_NODELAY */, &on, sizeof(on));
  const std::string request =
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: 1\r\n\r\n";
  for (size_t cut = 1; cut < request.size(); cut++) {
    client.send(request.substr(0, cut));
    const Answer answer = client.ask(request.substr(cut));
    ASSERT_EQ(answer.status, 200) << cut;
    ASSERT_EQ(answer.body, "abcde") << cut;
  }
  for (const char c : request)
    client.send({&c, 1});
  EXPECT_EQ(client.read_answer().body, "abcde");
}

TEST(Http, pipelined_requests_are_answered_in_order) {
  TestServer server;
  RawClient client(server.port());
  std::string all;
  constexpr int kRequests = 300;
  for (int i = 0; i < kRequests; i++) {
    all += i % 3 == 0 ? post("/echo", fmt::format("n{}", i))
                      : "GET /items/" + std::to_string(i) + " HTTP/1.1\r\nHost: x\r\n\r\n";
  }
  client.send(all);
  for (int i = 0; i < kRequests; i++) {
    const Answer answer = client.read_answer();
    ASSERT_EQ(answer.body, i % 3 == 0 ? fmt::format("n{}", i) : fmt::format("item {} ?", i)) << i;
  }
}

TEST(Http, more_pipelined_bytes_than_the_bound_wait_in_the_socket) {
  ServerOptions options;
  options.limits.pipelined_bytes = 1000;
  TestServer server(options);
  RawClient client(server.port());
  std::string all;
  for (int i = 0; i < 50; i++)
    all += post("/echo", std::string(5000, char('a' + i % 26)));
  std::thread sender([&] { client.send(all); });
  for (int i = 0; i < 50; i++)
    EXPECT_EQ(client.read_answer().body, std::string(5000, char('a' + i % 26)));
  sender.join();
}

TEST(Http, pipelined_requests_are_answered_after_the_clients_fin) {
  TestServer server;
  RawClient client(server.port());
  client.send(post("/echo", "1") + "GET /health HTTP/1.1\r\nHost: x\r\n\r\n" + post("/echo", "3"));
  client.end_sending();
  EXPECT_EQ(client.read_answer().body, "1");
  EXPECT_EQ(client.read_answer().body, R"({"status":"ok"})");
  EXPECT_EQ(client.read_answer().body, "3");
  EXPECT_TRUE(client.at_end());
}

TEST(Http, chunked_request_with_extensions_and_trailers) {
  TestServer server;
  RawClient client(server.port());
  const std::string head = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n";
  EXPECT_EQ(
      client
          .ask(head +
               "5;name=\"va;lue\"\r\nhello\r\nA\r\n, chunked!\r\n0\r\nX-Sum: 1\r\nContent-Type: a\r\n\r\n")
          .body,
      "hello, chunked!");
  EXPECT_EQ(client.ask(head + "0\r\n\r\n").status, 200);
  EXPECT_EQ(client.ask(head + "00003\r\nabc\r\n000\r\n\r\n").body, "abc");
}

TEST(Http, expect_100_continue) {
  TestServer server;
  RawClient client(server.port());
  const std::string head =
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-Continue\r\n\r\n";
  EXPECT_EQ(client.ask(head).status, 100);
  EXPECT_EQ(client.ask("body").body, "body");
  // Nothing to continue with: the final answer comes at once, and the body is never asked for.
  RawClient refused(server.port());
  const Answer answer =
      refused.ask("POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(answer.field("connection"), "close");
  EXPECT_EQ(RawClient(server.port()).ask(post("/echo", "x", "Expect: tea\r\n")).status, 417);
  EXPECT_EQ(RawClient(server.port())
                .ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: tea\r\n\r\n")
                .status,
            417);
  // Without a body there is nothing to wait for.
  EXPECT_EQ(
      RawClient(server.port()).ask("GET /health HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n").status,
      200);
}

TEST(Http, http_1_0_gets_no_chunks_and_the_connection_closes) {
  TestServer server;
  {
    RawClient client(server.port());
    client.send("GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    const Answer answer = client.read_answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.field("connection"), "close");
    EXPECT_TRUE(client.at_end());
  }
  RawClient client(server.port());
  client.send("POST /stream HTTP/1.0\r\nContent-Length: 0\r\n\r\n");
  const auto feed = testing::Feeds::instance().take();
  feed->push("data: 1\n\n");
  feed->push("data: 2\n\n", true);
  const std::string all = client.read_to_end();
  EXPECT_EQ(all.find("Transfer-Encoding"), std::string::npos);
  EXPECT_TRUE(all.ends_with("\r\n\r\ndata: 1\n\ndata: 2\n\n")) << all;
}

TEST(Http, head_has_the_fields_of_get_and_no_body) {
  TestServer server;
  RawClient client(server.port());
  client.send(
      "HEAD /health HTTP/1.1\r\nHost: x\r\n\r\nHEAD /items/7 HTTP/1.1\r\nHost: x\r\n\r\nGET /health "
      "HTTP/1.1\r\nHost: x\r\n\r\n");
  const Answer head = client.read_answer(true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.field("content-length"), "15");
  EXPECT_EQ(client.read_answer(true).field("content-length"), "8");
  EXPECT_EQ(client.read_answer().body, R"({"status":"ok"})");
}

TEST(Http, options_says_which_methods_a_path_has) {
  TestServer server;
  RawClient client(server.port());
  const auto options = [&](std::string_view path) {
    client.send(fmt::format("OPTIONS {} HTTP/1.1\r\nHost: x\r\n\r\n", path));
    return client.read_answer();
  };
  EXPECT_EQ(options("/echo").status, 204);
  EXPECT_EQ(options("/echo").field("allow"), "POST, OPTIONS");
  EXPECT_EQ(options("/health").field("allow"), "GET, HEAD, OPTIONS");
  EXPECT_EQ(options("*").field("allow"), "GET, HEAD, POST, OPTIONS");
  EXPECT_FALSE(options("/echo").fields.contains("content-length"));
  EXPECT_EQ(options("/nowhere").status, 404);
}

TEST(Http, unknown_paths_are_404_and_wrong_methods_405) {
  TestServer server;
  RawClient client(server.port());
  for (const char* path : {"/", "/nowhere", "/echo/", "//echo", "/../etc/passwd", "/items/%2e%2e/..%2f", "/%",
                           "/%zz", "/%00", "/echo%00", "/health/../echo", "/healt%"}) {
    const Answer answer = client.ask(fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", path));
    const bool item = std::string_view(path).starts_with("/items/");
    EXPECT_EQ(answer.status, item ? 200 : 404) << path;
    if (!item) EXPECT_TRUE(answer.body.starts_with("error unknown_path")) << answer.body;
  }
  for (const char* method : {"GET", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "BREW"}) {
    const Answer answer = client.ask(fmt::format("{} /echo HTTP/1.1\r\nHost: x\r\n\r\n", method));
    EXPECT_EQ(answer.status, 405) << method;
    EXPECT_EQ(answer.field("allow"), "POST, OPTIONS");
  }
  EXPECT_EQ(client.ask(post("/health", "x")).status, 405);
  EXPECT_EQ(client.ask("GET /health HTTP/1.1\r\nHost: x\r\n\r\n").status, 200);
}

TEST(Http, targets_are_decoded_and_may_be_absolute) {
  TestServer server;
  RawClient client(server.port());
  const auto get = [&](std::string_view target) {
    return client.ask(fmt::format("GET {} HTTP/1.1\r\nHost: whatever\r\n\r\n", target)).body;
  };
  EXPECT_EQ(get("/items/a%2Fb%20c?x=%20y"), "item a/b c ?x=%20y");
  EXPECT_EQ(get("/h%65alth"), R"({"status":"ok"})");
  EXPECT_EQ(get("http://example.org:1/items/1?q"), "item 1 ?q");
  EXPECT_EQ(get("http://example.org/health"), R"({"status":"ok"})");
}

TEST(Http, a_refused_small_body_keeps_the_connection) {
  TestServer server;
  RawClient client(server.port());
  EXPECT_EQ(client.ask(post("/nowhere", "some body")).status, 404);
  EXPECT_EQ(client.ask(post("/echo", "next")).body, "next");
}

TEST(Http, compressed_bodies_are_refused) {
  TestServer server;
  for (const char* coding : {"gzip", "deflate", "br", "identity, gzip", "zstd"}) {
    RawClient client(server.port());
    EXPECT_EQ(client.ask(post("/echo", "x", fmt::format("Content-Encoding: {}\r\n", coding))).status, 415)
        << coding;
  }
  RawClient client(server.port());
  EXPECT_EQ(client.ask(post("/echo", "x", "Content-Encoding: identity\r\n")).body, "x");
}

TEST(Http, a_handler_that_throws_is_an_internal_error) {
  TestServer server;
  RawClient client(server.port());
  const Answer answer = client.ask(post("/throw", ""));
  EXPECT_EQ(answer.status, 500);
  EXPECT_TRUE(answer.body.starts_with("error internal_error: ")) << answer.body;
  EXPECT_EQ(answer.body.find("on purpose"), std::string::npos);
  const std::string page = client.ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").body;
  EXPECT_NE(page.find("\ninvar_http_requests_open 1\n"), std::string::npos) << page;
  EXPECT_EQ(client.ask(post("/echo", "alive")).body, "alive");
}

TEST(Http, answers_without_stream_wait_for_the_exchange) {
  TestServer server;
  RawClient client(server.port());
  client.send(post("/wait", "q"));
  const auto feed = testing::Feeds::instance().take();
  feed->push("part one, ");
  feed->push("part two", true);
  const Answer answer = client.read_answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "part one, part two");
  EXPECT_TRUE(feed->dropped());
}

}  // namespace
}  // namespace invar::server
