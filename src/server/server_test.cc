// Starting, ending, keys, pages of other origins, and what the server says about itself.
#include "server/server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/freed_memory.h"
#include "base/testing/sanitized.h"
#include "server/testing/raw_client.h"
#include "server/testing/test_protocol.h"

namespace invar::server {
namespace {

using testing::Answer;
using testing::Feeds;
using testing::RawClient;
using testing::TestServer;

constexpr const char* kHealth = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";

std::string post(std::string_view path, std::string_view body = "", std::string_view more = "") {
  return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n{}\r\n{}", path, body.size(), more,
                     body);
}

std::string temporary(std::string_view name) {
  return fmt::format("{}{}-{}", ::testing::TempDir(), name, ::getpid());
}

Status start_error(ServerOptions options) {
  const auto endpoint = Endpoint::open(options);
  return endpoint.ok() ? Status() : endpoint.status();
}

TEST(Server, a_port_in_use_is_an_error_that_names_the_flag) {
  TestServer server;
  ServerOptions options;
  options.port = server.port();
  const Status status = start_error(options);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("--port"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("in use"), std::string::npos) << status.message();
}

TEST(Server, wrong_hosts_and_ports_are_errors_that_name_the_flag) {
  ServerOptions options;
  options.port = 0;
  options.host = "no such host";
  EXPECT_NE(start_error(options).message().find("--host"), std::string::npos);
  options.host = "203.0.113.1";
  EXPECT_NE(start_error(options).message().find("--host"), std::string::npos);
  options.host = "127.0.0.1";
  options.port = 65536;
  EXPECT_NE(start_error(options).message().find("--port"), std::string::npos);
  options.port = -1;
  EXPECT_NE(start_error(options).message().find("--unix"), std::string::npos);
}

TEST(Server, listens_on_ipv6_where_the_machine_has_it) {
  ServerOptions options;
  options.host = "::1";
  options.port = 0;
  const auto endpoint = Endpoint::open(options);
  if (!endpoint.ok()) {
    EXPECT_NE(endpoint.status().message().find("--host ::1"), std::string::npos)
        << endpoint.status().message();
  } else {
    EXPECT_GT(endpoint->port(), 0);
  }
}

TEST(Server, clients_that_come_before_it_is_there_are_answered_by_it) {
  ServerOptions options;
  options.port = 0;
  options.access_sink = [](std::string_view) {};
  auto endpoint = Endpoint::open(options);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status().message();
  RawClient early(endpoint->port()), gone(endpoint->port());
  ASSERT_TRUE(early.connected());
  early.send(kHealth);
  gone.send(kHealth);
  gone.reset();
  const api::Service service;
  Server server(std::move(*endpoint), service, testing::test_router);
  std::thread thread([&] { server.run(); });
  EXPECT_EQ(early.read_answer().status, 200);
  server.stop_now();
  thread.join();
}

TEST(Server, an_endpoint_that_no_server_ran_on_leaves_nothing) {
  ServerOptions options;
  options.port = 0;
  options.unix_path = temporary("unused");
  uint16_t port = 0;
  {
    const auto endpoint = Endpoint::open(options);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status().message();
    port = endpoint->port();
    EXPECT_TRUE(RawClient(port).connected());
    EXPECT_TRUE(RawClient(options.unix_path).connected());
  }
  EXPECT_FALSE(RawClient(port).connected());
  EXPECT_FALSE(std::filesystem::exists(options.unix_path));
}

TEST(Server, unix_socket_serves_has_mode_0600_and_goes_away) {
  const std::string path = temporary("sock");
  ServerOptions options;
  options.unix_path = path;
  {
    TestServer server(options);
    struct stat file{};
    ASSERT_EQ(::lstat(path.c_str(), &file), 0);
    EXPECT_EQ(file.st_mode & 07777, 0600u);
    EXPECT_EQ(RawClient(path).ask(kHealth).status, 200);
    // A second server does not take it away.
    ServerOptions second;
    second.port = -1;
    second.unix_path = path;
    EXPECT_NE(start_error(second).message().find("another server answers"), std::string::npos);
    EXPECT_EQ(RawClient(path).ask(kHealth).status, 200);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Server, a_stale_unix_socket_is_replaced_and_other_files_are_not) {
  const std::string path = temporary("stale");
  {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ::close(fd);
  }
  ServerOptions options;
  options.port = -1;
  options.unix_path = path;
  {
    EXPECT_TRUE(start_error(options).ok());
  }
  std::ofstream(path) << "precious";
  EXPECT_NE(start_error(options).message().find("no socket"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(path));
  std::filesystem::remove(path);
  options.unix_path = std::string(200, 'x');
  EXPECT_NE(start_error(options).message().find("--unix"), std::string::npos);
}

TEST(Server, drain_ends_idle_connections_and_waits_for_running_ones) {
  TestServer server;
  RawClient idle(server.port()), streams(server.port()), waits(server.port());
  EXPECT_EQ(idle.ask(kHealth).status, 200);
  streams.send(post("/stream"));
  const auto stream = Feeds::instance().take();
  waits.send(post("/wait"));
  const auto wait = Feeds::instance().take();
  const uint16_t port = server.port();
  server->drain();
  EXPECT_TRUE(idle.at_end());
  EXPECT_FALSE(RawClient(port).connected());
  // A request on a connection that was kept is refused, in order.
  waits.send(kHealth);
  stream->push("data: 1\n\n", true);
  EXPECT_EQ(streams.read_answer().body, "data: 1\n\n");
  EXPECT_TRUE(streams.at_end());
  streams.close();
  wait->push("done", true);
  const Answer answer = waits.read_answer();
  EXPECT_EQ(answer.body, "done");
  EXPECT_EQ(answer.field("connection"), "close");
  EXPECT_TRUE(waits.at_end());
  waits.close();
  server.wait_for_drain();
}

TEST(Server, a_request_that_has_not_arrived_when_draining_begins_gets_503) {
  TestServer server;
  RawClient half(server.port()), keeps(server.port());
  keeps.send(post("/wait"));
  const auto wait = Feeds::instance().take();
  // A head that has begun is no idle connection. The answer to the second client tells that it was read.
  half.send("GET /health HTTP/1.1\r\nHost: x\r\nX-Half:");
  std::string page;
  for (int i = 0; i < 1000 && page.find("invar_http_requests_open 3\n") == std::string::npos; i++) {
    page = RawClient(server.port()).ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").body;
  }
  server->drain();
  EXPECT_FALSE([&] {
    int tries = 0;
    while (RawClient(server.port()).connected() && tries < 10'000)
      tries++;
    return tries == 10'000;
  }());
  const Answer answer = half.read_answer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.field("connection"), "close");
  EXPECT_TRUE(half.at_end());
  half.close();
  wait->finish();
  EXPECT_EQ(keeps.read_answer().status, 200);
  keeps.close();
  server.wait_for_drain();
}

TEST(Server, stop_now_drops_everything) {
  TestServer server;
  RawClient client(server.port());
  client.send(post("/stream"));
  const auto feed = Feeds::instance().take();
  client.read_until("\r\n\r\n");  // it is a stream now, and no longer on a worker
  server->stop_now();
  EXPECT_TRUE(feed->dropped());
  EXPECT_TRUE(client.read_to_end().find("\r\n0\r\n") == std::string::npos);
  server.stop();
  feed->push("data: late\n\n");  // the engine may still speak after the server is gone
}

TEST(Server, keys_are_needed_everywhere_but_for_health) {
  ServerOptions options;
  options.api_keys = {"first-key", "second-key"};
  TestServer server(options);
  RawClient client(server.port());
  const auto status = [&](std::string_view more) { return client.ask(post("/echo", "x", more)).status; };
  EXPECT_EQ(status("Authorization: Bearer first-key\r\n"), 200);
  EXPECT_EQ(status("authorization: bearer  second-key\r\n"), 200);
  EXPECT_EQ(status("X-Api-Key: second-key\r\n"), 200);
  for (const char* wrong : {"", "Authorization: Bearer first-ke\r\n", "Authorization: Bearer first-key2\r\n",
                            "Authorization: Bearer \r\n", "Authorization: Basic first-key\r\n",
                            "Authorization: first-key\r\n", "X-Api-Key: \r\n", "X-Api-Key: third\r\n"}) {
    EXPECT_EQ(status(wrong), 401) << wrong;
  }
  const Answer answer = client.ask(post("/echo", "x"));
  EXPECT_EQ(answer.field("www-authenticate"), "Bearer");
  EXPECT_TRUE(answer.body.starts_with("error invalid_api_key")) << answer.body;
  EXPECT_EQ(client.ask(kHealth).status, 200);
  EXPECT_EQ(client.ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").status, 401);
  EXPECT_EQ(client.ask("GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n").status, 401);
}

TEST(Server, a_large_body_without_a_key_is_not_read) {
  ServerOptions options;
  options.api_keys = {"k"};
  TestServer server(options);
  RawClient client(server.port());
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n");
  EXPECT_EQ(client.read_answer().status, 401);
}

TEST(Server, too_many_requests_says_when_a_place_may_be_free) {
  TestServer server;
  const auto retry_after = [&](const std::string& body = "") {
    RawClient client(server.port());
    client.send(post("/busy", body));
    const Answer answer = client.read_answer();
    EXPECT_EQ(answer.status, 429);
    return answer.field("retry-after");
  };
  EXPECT_EQ(retry_after(), "1") << "at least";
  server.predicted_wait_s = 41;
  EXPECT_EQ(retry_after(), "11") << "a quarter of the wait";
  server.predicted_wait_s = 1e9;
  EXPECT_EQ(retry_after(), "600") << "at most";
  EXPECT_EQ(retry_after("7"), "7") << "what the protocol says counts more";
}

TEST(Server, pages_of_other_origins_get_nothing_by_default) {
  TestServer server;
  RawClient client(server.port());
  for (const std::string& request :
       {post("/echo", "x", "Origin: https://a.example\r\n"),
        std::string("OPTIONS /echo HTTP/1.1\r\nHost: x\r\nOrigin: https://a.example\r\n"
                    "Access-Control-Request-Method: POST\r\n\r\n")}) {
    client.send(request);
    for (const auto& [name, value] : client.read_answer().fields) {
      EXPECT_FALSE(name.starts_with("access-control-")) << name;
    }
  }
}

TEST(Server, listed_origins_may_read_answers_without_credentials) {
  ServerOptions options;
  options.cors_origins = {"https://a.example", "http://localhost:3000"};
  options.api_keys = {"k"};
  TestServer server(options);
  RawClient client(server.port());
  const auto ask = [&](std::string_view origin, std::string_view more = "X-Api-Key: k\r\n") {
    return client.ask(post("/echo", "x", fmt::format("Origin: {}\r\n{}", origin, more)));
  };
  EXPECT_EQ(ask("https://a.example").field("access-control-allow-origin"), "https://a.example");
  EXPECT_EQ(ask("https://a.example").field("vary"), "Origin");
  EXPECT_EQ(ask("https://a.example").field("access-control-allow-credentials"), "");
  // Errors too, or the page cannot read why.
  EXPECT_EQ(ask("http://localhost:3000", "").field("access-control-allow-origin"), "http://localhost:3000");
  for (const char* other : {"https://b.example", "https://a.example.b", "http://a.example", "null", ""}) {
    EXPECT_EQ(ask(other).field("access-control-allow-origin"), "") << other;
  }
  const auto preflight = [&](std::string_view origin) {
    client.send(fmt::format(
        "OPTIONS /echo HTTP/1.1\r\nHost: x\r\nOrigin: {}\r\nAccess-Control-Request-Method: POST\r\n"
        "Access-Control-Request-Headers: authorization,content-type,x-stainless-os\r\n\r\n",
        origin));
    return client.read_answer();
  };
  const Answer allowed = preflight("https://a.example");
  EXPECT_EQ(allowed.status, 204);
  EXPECT_EQ(allowed.field("access-control-allow-methods"), "POST, OPTIONS");
  EXPECT_EQ(allowed.field("access-control-allow-headers"), "authorization,content-type,x-stainless-os");
  EXPECT_EQ(allowed.field("access-control-allow-origin"), "https://a.example");
  EXPECT_EQ(preflight("https://b.example").field("access-control-allow-methods"), "");
}

TEST(Server, any_origin_may_be_allowed) {
  ServerOptions options;
  options.cors_origins = {"*"};
  TestServer server(options);
  EXPECT_EQ(RawClient(server.port())
                .ask(post("/echo", "x", "Origin: https://a.example\r\n"))
                .field("access-control-allow-origin"),
            "*");
}

int64_t resident_bytes() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST(Server, memory_of_large_requests_goes_back_to_the_system) {
  if (INVAR_SANITIZED) GTEST_SKIP() << "a sanitizer keeps freed memory and adds its own";
  return_large_blocks();
  TestServer server;
  const auto echo = [&server](size_t bytes) {
    return RawClient(server.port()).ask(post("/echo", std::string(bytes, 'x'))).status;
  };
  EXPECT_EQ(echo(1), 200);
  const int64_t before = resident_bytes();
  for (int i = 0; i < 4; i++)
    ASSERT_EQ(echo(20 << 20), 200);
  // This side of the test has freed its copies by now, and both share an allocator.
  ASSERT_EQ(echo(1 << 20), 200);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (resident_bytes() - before > 8 << 20 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_LE((resident_bytes() - before) >> 20, 8);
}

TEST(Server, idle_connections_cost_less_than_50_kb_each) {
  if (INVAR_SANITIZED) GTEST_SKIP() << "a sanitizer keeps freed memory and adds its own";
  TestServer server;
  constexpr int kConnections = 400;
  RawClient first(server.port());
  EXPECT_EQ(first.ask(kHealth).status, 200);
  const int64_t before = resident_bytes();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < kConnections; i++) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    // A used connection: what it needed for its request is given back.
    ASSERT_EQ(clients.back()->ask(post("/echo", std::string(100'000, 'x'))).status, 200);
  }
  EXPECT_LT(resident_bytes() - before, kConnections * 50'000);
}

std::vector<std::string> lines_of(TestServer& server, std::vector<std::string>& lines) {
  server.stop();
  return lines;
}

TEST(Server, every_request_is_one_line_of_the_access_log) {
  std::vector<std::string> lines;
  ServerOptions options;
  options.api_keys = {"secret-key-0", "secret-key-1"};
  options.access_sink = [&](std::string_view line) { lines.emplace_back(line); };
  TestServer server(options);
  const std::string key = "Authorization: Bearer secret-key-1\r\n";
  RawClient client(server.port());
  client.ask(post("/echo?secret=query", "the prompt text", key));
  client.ask(post("/echo", "x"));
  client.send(post("/stream", "", key));
  Feeds::instance().take()->push("data: 1\n\n", true);
  client.read_answer();
  client.ask("G\"T /\x80 HTTP/1.1\r\nHost: x\r\n\r\n");
  RawClient gone(server.port());
  gone.send(post("/wait", "", key));
  const auto feed = Feeds::instance().take();
  gone.reset();
  EXPECT_TRUE(feed->dropped());
  client.ask(kHealth);

  const auto logged = lines_of(server, lines);
  ASSERT_EQ(logged.size(), 5u);
  std::string all;
  for (const std::string& line : logged)
    all += line + "\n";
  for (const char* hidden : {"secret", "prompt text", "query"})
    EXPECT_EQ(all.find(hidden), std::string::npos) << all;
  const auto has = [&](int line, std::string_view part) {
    EXPECT_NE(logged[line].find(part), std::string::npos) << part << " in " << logged[line];
  };
  has(0, R"("method":"POST","path":"/echo","status":200,)");
  has(0, R"("key":1)");
  has(0, R"("outcome":"done"})");
  has(1, R"("status":401)");
  has(2, R"("path":"/stream","status":200)");
  has(2, R"("model":"test-model","choices":1,"prompt_tokens":7,"cached_tokens":3,"generated_tokens":2,)"
         R"("priority":-2,"queue_ms":1.500,"preemptions":4,"ttft_ms":)");
  has(2, R"("finish":"stop")");
  has(3, R"("status":400)");
  has(4, R"("path":"/wait","status":499)");
  has(4, R"("outcome":"client gone"})");
}

}  // namespace
}  // namespace invar::server
