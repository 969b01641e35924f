#include "cli/http_client.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/clock.h"
#include "server/testing/test_protocol.h"

namespace invar {
namespace {

using server::testing::Feeds;
using server::testing::TestServer;

TEST(ServerAddress, is_read_in_every_form) {
  const auto read = [](const char* text) {
    const auto a = parse_server_address(text);
    return a.ok() ? fmt::format("{}|{}|{}", a->origin, a->prefix, a->unix_path) : "error";
  };
  EXPECT_EQ(read("http://127.0.0.1:8080"), "http://127.0.0.1:8080||");
  EXPECT_EQ(read("http://127.0.0.1:8080/v1"), "http://127.0.0.1:8080||");
  EXPECT_EQ(read("http://[::1]:8080/v1/"), "http://[::1]:8080||");
  EXPECT_EQ(read("localhost:99"), "http://localhost:99||");
  EXPECT_EQ(read("https://a.example/models/v1"), "https://a.example|/models|");
  EXPECT_EQ(read("unix:/run/invar.sock"), "http://localhost||/run/invar.sock");
  for (const char* wrong : {"", "http://", "ftp://x", "unix:", "http://a b", "http://user:pw@host",
                            "http://x/?q", ":8080", "http://x\n"})
    EXPECT_EQ(read(wrong), "error") << wrong;
  EXPECT_EQ(read(("unix:/" + std::string(200, 'x')).c_str()), "error");
}

std::unique_ptr<HttpClient> client_of(const std::string& address, std::string key = "") {
  auto client = HttpClient::create(*parse_server_address(address), std::move(key));
  EXPECT_TRUE(client.ok());
  return std::move(*client);
}

std::unique_ptr<HttpClient> client_of(TestServer& server, std::string key = "") {
  return client_of(fmt::format("http://127.0.0.1:{}/v1", server.port()), std::move(key));
}

ApiRequest post(const char* target, std::string body) {
  ApiRequest request;
  request.target = target;
  request.body = std::move(body);
  return request;
}

TEST(HttpClient, bodies_go_and_come_back_byte_for_byte) {
  TestServer server;
  const auto client = client_of(server);
  std::string body(3'000'000, '\0');
  for (size_t i = 0; i < body.size(); ++i)
    body[i] = char(i * 7);
  for (const std::string& sent : {body, std::string(), std::string("x")}) {
    const auto reply = client->send(post("/echo", sent));
    ASSERT_TRUE(reply.ok()) << reply.status().message();
    EXPECT_EQ(reply->status, 200);
    EXPECT_TRUE(reply->body == sent);
    EXPECT_FALSE(reply->broken);
  }
}

TEST(HttpClient, targets_and_methods_are_sent_as_they_are) {
  TestServer server;
  const auto client = client_of(server);
  ApiRequest request;
  request.method = "GET";
  request.target = "/items/a%2Fb?q=%20";
  EXPECT_EQ(client->send(request)->body, "item a/b ?q=%20");
  request.method = "HEAD";
  EXPECT_EQ(client->send(request)->body, "");
  EXPECT_EQ(client->send(request)->status, 200);
  request.method = "OPTIONS";
  EXPECT_EQ(client->send(request)->status, 204);
  request.method = "DELETE";
  EXPECT_EQ(client->send(request)->status, 405);
  request.method = "GET";
  request.target = "/items/../x";
  EXPECT_EQ(client->send(request)->body, "item ../x ?");
  for (const char* wrong : {"/a b", "/a\r\nX: y", ""}) {
    request.target = wrong;
    EXPECT_EQ(client->send(request).status().code(), Code::kInvalidArgument) << wrong;
  }
}

TEST(HttpClient, a_unix_socket_and_a_key) {
  server::ServerOptions options;
  options.unix_path = fmt::format("{}http-client-{}.sock", ::testing::TempDir(), ::getpid());
  options.api_keys = {"secret"};
  TestServer server(options);
  EXPECT_EQ(client_of("unix:" + options.unix_path)->send(post("/echo", "a"))->status, 401);
  EXPECT_EQ(client_of("unix:" + options.unix_path, "wrong")->send(post("/echo", "a"))->status, 401);
  EXPECT_EQ(client_of("unix:" + options.unix_path, "secret")->send(post("/echo", "a"))->body, "a");
}

TEST(HttpClient, a_stream_reaches_its_sink_frame_by_frame) {
  TestServer server;
  const auto client = client_of(server);
  std::string got;
  std::thread engine([] {
    const auto feed = Feeds::instance().take();
    feed->push("data: 1\n\n");
    feed->push("data: 2\n\n", true);
  });
  const auto reply = client->send(post("/stream", "{}"), [&](std::string_view bytes) { got += bytes; });
  engine.join();
  ASSERT_TRUE(reply.ok());
  EXPECT_TRUE(reply->is_stream());
  EXPECT_EQ(got, "data: 1\n\ndata: 2\n\n");
  EXPECT_EQ(reply->body, "");
  EXPECT_FALSE(reply->broken);
}

TEST(HttpClient, cancel_ends_a_stream_and_a_silent_request_at_once) {
  TestServer server;
  const auto client = client_of(server);
  // In mid-stream, from the sink's side; the server drops the work.
  std::shared_ptr<server::testing::Feed> feed;
  std::thread engine([&] {
    feed = Feeds::instance().take();
    feed->push("data: 1\n\n");
  });
  auto reply = client->send(post("/stream", "{}"), [&](std::string_view) { client->cancel(); });
  engine.join();
  EXPECT_EQ(reply.status().code(), Code::kCancelled);
  // While nothing comes, from another thread.
  client->resume();
  std::thread other([&] {
    Feeds::instance().take();
    client->cancel();
  });
  const int64_t start = now_ns();
  reply = client->send(post("/wait", "{}"));
  other.join();
  EXPECT_LT(now_ns() - start, 8'000'000'000);  // not at the end of a wait in the library
  EXPECT_EQ(reply.status().code(), Code::kCancelled);
  EXPECT_EQ(client->send(post("/echo", "x")).status().code(), Code::kCancelled);
  client->resume();
  EXPECT_EQ(client->send(post("/echo", "x"))->body, "x");
}

TEST(HttpClient, a_stream_that_breaks_off_is_told_from_one_that_ends) {
  TestServer server;
  const auto client = client_of(server);
  std::thread engine([] { Feeds::instance().take()->push("data: 1\n\n"); });
  std::string got;
  const auto reply = client->send(post("/stream", "{}"), [&](std::string_view bytes) {
    got += bytes;
    server->stop_now();
  });
  engine.join();
  ASSERT_TRUE(reply.ok()) << reply.status().message();
  EXPECT_EQ(got, "data: 1\n\n");
  EXPECT_TRUE(reply->broken);
}

TEST(HttpClient, says_that_nobody_answers) {
  uint16_t port = 0;
  {
    TestServer server;
    port = server.port();
  }
  const auto reply = client_of(fmt::format("http://127.0.0.1:{}", port))->send(post("/echo", "x"));
  EXPECT_EQ(reply.status().code(), Code::kUnavailable);
  EXPECT_NE(reply.status().message().find("no server answers there"), std::string::npos)
      << reply.status().message();
  const auto unix_reply = client_of("unix:/nonexistent/x.sock")->send(post("/echo", "x"));
  EXPECT_EQ(unix_reply.status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace invar
