#include "cli/http_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

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

// Answers one request with these bytes, `more` times over, and waits for the client to go.
class RawServer {
 public:
  RawServer(std::string answer, std::string more = "", int times = 0)
      : listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_, 1), 0);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, answer = std::move(answer), more = std::move(more), times] {
      const int peer = ::accept(listener_, nullptr, nullptr);
      char bytes[4096];
      ::recv(peer, bytes, sizeof bytes, 0);
      bool open = ::send(peer, answer.data(), answer.size(), MSG_NOSIGNAL) > 0;
      for (int i = 0; i < times && open; ++i)
        open = ::send(peer, more.data(), more.size(), MSG_NOSIGNAL) > 0;
      while (::recv(peer, bytes, sizeof bytes, 0) > 0) {
      }
      ::close(peer);
    });
  }
  ~RawServer() {
    thread_.join();
    ::close(listener_);
  }
  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

 private:
  int listener_, port_ = 0;
  std::thread thread_;
};

TEST(HttpClient, a_body_without_end_is_refused) {
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
  const std::string piece(1 << 20, 'x');
  {
    // Announced: nothing of it is waited for.
    RawServer server(head + "Content-Length: 1073741824\r\n\r\n{");
    const auto reply = client_of(server.address())->send(post("/v1/chat/completions", "{}"));
    EXPECT_EQ(reply.status().code(), Code::kResourceExhausted);
    EXPECT_NE(reply.status().message().find("the answer (status 200) is larger than 67108864 bytes"),
              std::string::npos)
        << reply.status().message();
  }
  RawServer server(head + "Transfer-Encoding: chunked\r\n\r\n", "100000\r\n" + piece + "\r\n", 65);
  const auto reply = client_of(server.address())->send(post("/v1/chat/completions", "{}"));
  EXPECT_EQ(reply.status().code(), Code::kResourceExhausted);
}

TEST(HttpClient, a_redirection_is_an_answer_like_others) {
  RawServer server("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n");
  const auto reply = client_of(server.address())->send(post("/v1/chat/completions", "{}"));
  ASSERT_TRUE(reply.ok()) << reply.status().message();
  EXPECT_EQ(reply->status, 302);
  EXPECT_EQ(reply->body, "");
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
