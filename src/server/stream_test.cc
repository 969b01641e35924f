// Streams: frames as they come, clients that leave, clients that do not read, ends that the server makes.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>

#include "server/testing/raw_client.h"
#include "server/testing/test_protocol.h"

namespace invar::server {
namespace {

using testing::Answer;
using testing::Feed;
using testing::Feeds;
using testing::RawClient;
using testing::TestServer;

std::string post(std::string_view path, std::string_view body = "") {
  return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", path, body.size(), body);
}

TEST(Stream, frames_go_out_as_they_come) {
  TestServer server;
  RawClient client(server.port());
  client.send(post("/stream"));
  const auto feed = Feeds::instance().take();
  // The head is there before the first frame.
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_NE(head.find("Content-Type: text/event-stream"), std::string::npos) << head;
  EXPECT_NE(head.find("Cache-Control: no-cache"), std::string::npos);
  EXPECT_NE(head.find("Transfer-Encoding: chunked"), std::string::npos);
  for (int i = 0; i < 20; i++) {
    const std::string frame = fmt::format("data: {}\n\n", i);
    feed->push(frame);
    EXPECT_EQ(client.read_until("\n\n\r\n"), fmt::format("{:x}\r\n{}\r\n", frame.size(), frame));
  }
  feed->push("data: [DONE]\n\n", true);
  EXPECT_EQ(client.read_until("0\r\n\r\n"), "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
  EXPECT_TRUE(feed->dropped());
  EXPECT_EQ(client.ask("GET /health HTTP/1.1\r\nHost: x\r\n\r\n").status, 200);
}

TEST(Health, says_what_forbids_answers) {
  TestServer server;
  RawClient client(server.port());
  EXPECT_EQ(client.ask("GET /health HTTP/1.1\r\nHost: x\r\n\r\n").status, 200);
  server.faulty = true;
  const auto response = client.ask("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.body, R"({"status":"error","message":"the test says so"})");
}

TEST(Stream, many_frames_at_once_are_one_chunk) {
  TestServer server;
  RawClient client(server.port());
  client.send(post("/stream"));
  const auto feed = Feeds::instance().take();
  client.read_until("\r\n\r\n");
  std::string frames;
  for (int i = 0; i < 100; i++)
    frames += fmt::format("data: {}\n\n", i);
  feed->push(frames);
  EXPECT_EQ(client.read_until("\r\n"), fmt::format("{:x}\r\n", frames.size()));
  EXPECT_EQ(client.read_until("data: 99\n\n"), frames);
}

TEST(Stream, frames_of_concurrent_streams_do_not_mix) {
  TestServer server;
  constexpr int kStreams = 16, kFrames = 500;
  std::vector<std::unique_ptr<RawClient>> clients;
  std::vector<std::shared_ptr<Feed>> feeds;
  for (int i = 0; i < kStreams; i++) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    clients.back()->send(post("/stream"));
    feeds.push_back(Feeds::instance().take());
  }
  std::thread engine([&] {
    for (int n = 0; n < kFrames; n++) {
      for (int i = 0; i < kStreams; i++)
        feeds[i]->push(fmt::format("data: {}.{}\n\n", i, n), n == kFrames - 1);
    }
  });
  for (int i = 0; i < kStreams; i++) {
    std::string expected;
    for (int n = 0; n < kFrames; n++)
      expected += fmt::format("data: {}.{}\n\n", i, n);
    const Answer answer = clients[i]->read_answer();
    EXPECT_EQ(answer.body, expected);
  }
  engine.join();
}

TEST(Stream, goes_on_after_the_clients_fin_until_a_write_fails) {
  TestServer server;
  RawClient client(server.port());
  client.send(post("/stream"));
  const auto feed = Feeds::instance().take();
  client.end_sending();
  feed->push("data: 1\n\n");
  EXPECT_FALSE(client.read_until("data: 1\n\n").empty());
  feed->push("data: 2\n\n", true);
  EXPECT_TRUE(client.read_to_end().ends_with("data: 2\n\n\r\n0\r\n\r\n"));
  EXPECT_TRUE(feed->dropped());
}

TEST(Stream, is_dropped_when_the_client_is_gone) {
  TestServer server;
  auto client = std::make_unique<RawClient>(server.port());
  client->send(post("/stream"));
  const auto feed = Feeds::instance().take();
  client->read_until("\r\n\r\n");
  client->close();  // a FIN: nothing says yet that nobody reads
  for (int i = 0; i < 10'000 && !feed->is_dropped_now(); i++)
    feed->push("data: x\n\n");
  EXPECT_TRUE(feed->dropped());
}

TEST(Stream, is_dropped_when_the_client_is_gone_before_there_is_a_frame) {
  TestServer server;
  RawClient client(server.port());
  client.send(post("/stream"));
  const auto feed = Feeds::instance().take();
  client.read_until("\r\n\r\n");
  client.close();
  EXPECT_TRUE(feed->dropped());
}

TEST(Stream, is_dropped_at_once_after_a_reset) {
  TestServer server;
  RawClient client(server.port());
  client.send(post("/stream"));
  const auto feed = Feeds::instance().take();
  client.read_until("\r\n\r\n");
  client.reset();
  EXPECT_TRUE(feed->dropped());  // without any write
}

TEST(Stream, is_dropped_by_a_reset_after_a_fin_and_behind_pipelined_bytes) {
  ServerOptions options;
  options.limits.pipelined_bytes = 1000;
  TestServer server(options);
  RawClient first(server.port()), second(server.port());
  first.send(post("/stream"));
  const auto feed = Feeds::instance().take();
  first.end_sending();
  second.send(post("/stream") + std::string(2000, 'x'));
  const auto full = Feeds::instance().take();
  first.read_until("\r\n\r\n");
  second.read_until("\r\n\r\n");
  first.reset();
  second.reset();
  EXPECT_TRUE(feed->dropped());
  EXPECT_TRUE(full->dropped());
}

TEST(Stream, requests_pipelined_behind_a_stream_are_answered_after_it) {
  TestServer server;
  RawClient client(server.port());
  client.send(post("/stream") + post("/echo", "behind"));
  const auto feed = Feeds::instance().take();
  client.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  feed->push("data: 1\n\n", true);
  EXPECT_EQ(client.read_answer().body, "data: 1\n\n");
  EXPECT_EQ(client.read_answer().body, "behind");
  EXPECT_EQ(client.read_answer().body, R"({"status":"ok"})");
}

TEST(Stream, a_request_without_stream_has_its_grace_after_a_fin) {
  ServerOptions options;
  options.deadlines.fin_grace_ms = 60'000;
  TestServer server(options);
  RawClient client(server.port());
  client.send(post("/wait"));
  const auto feed = Feeds::instance().take();
  client.end_sending();
  feed->push("in time", true);
  EXPECT_EQ(client.read_answer().body, "in time");
  EXPECT_TRUE(client.at_end());
}

TEST(Stream, a_request_without_stream_is_cancelled_when_the_grace_ends) {
  ServerOptions options;
  options.deadlines.fin_grace_ms = 30;
  TestServer server(options);
  RawClient client(server.port());
  client.send(post("/wait"));
  const auto feed = Feeds::instance().take();
  client.end_sending();
  EXPECT_TRUE(feed->dropped());
  EXPECT_TRUE(client.at_end());
}

TEST(Stream, a_request_without_stream_is_cancelled_at_once_by_a_reset) {
  ServerOptions options;
  options.deadlines.fin_grace_ms = 60'000;
  TestServer server(options);
  RawClient client(server.port());
  client.send(post("/wait"));
  const auto feed = Feeds::instance().take();
  client.reset();
  EXPECT_TRUE(feed->dropped());
}

TEST(Stream, a_slow_reader_is_bounded_and_then_cancelled) {
  ServerOptions options;
  options.limits.pending_stream_bytes = 100'000;
  TestServer server(options);
  RawClient slow(server.port(), 4096), other(server.port());
  slow.send(post("/stream"));
  const auto feed = Feeds::instance().take();
  other.send(post("/stream"));
  const auto other_feed = Feeds::instance().take();
  const std::string frame = "data: " + std::string(10'000, 'x') + "\n\n";
  // The sockets' own buffers take some megabytes.
  int sent = 0;
  for (; sent < 10'000 && !feed->is_dropped_now(); sent++) {
    feed->push(frame);
    other_feed->push("data: y\n\n");
    EXPECT_FALSE(other.read_until("data: y\n\n").empty());
  }
  EXPECT_LT(sent, 10'000);
  slow.read_to_end();
  EXPECT_TRUE(slow.was_reset());
  other_feed->finish();
  EXPECT_FALSE(other.read_until("0\r\n\r\n").empty());
}

TEST(Stream, much_at_once_is_no_slow_reader) {
  ServerOptions options;
  options.limits.pending_stream_bytes = 100'000;
  TestServer server(options);
  RawClient client(server.port(), 4096);
  client.send(post("/stream"));
  const auto feed = Feeds::instance().take();
  feed->push("data: " + std::string(20 << 20, 'x') + "\n\n");
  feed->push("data: y\n\n", true);
  EXPECT_EQ(client.read_answer().body.size(), (20u << 20) + 17);
}

TEST(Stream, a_reader_that_stopped_is_cancelled_even_below_the_bound) {
  ServerOptions options;
  options.limits.pending_stream_bytes = 100 << 20;
  options.deadlines.write_ms = 100;
  TestServer server(options);
  RawClient slow(server.port(), 4096);
  slow.send(post("/stream"));
  const auto feed = Feeds::instance().take();
  feed->push("data: " + std::string(20 << 20, 'x') + "\n\n");
  EXPECT_TRUE(feed->dropped());
}

TEST(Stream, a_long_answer_goes_to_a_client_that_reads_late) {
  TestServer server;
  RawClient client(server.port(), 4096);
  client.send(post("/wait"));
  const auto feed = Feeds::instance().take();
  const std::string body(20 << 20, 'b');
  feed->push(body, true);
  EXPECT_TRUE(feed->dropped());  // what it computed is not held until the client has read it
  EXPECT_EQ(client.read_answer().body.size(), body.size());
}

TEST(Stream, answers_that_nobody_takes_are_bounded_together) {
  ServerOptions options;
  options.limits.all_answers_bytes = 1'000'000;
  TestServer server(options);
  const auto ask = [&](RawClient& client, size_t bytes) {
    client.send(post("/wait"));
    Feeds::instance().take()->push(std::string(bytes, 'b'), true);
  };
  RawClient first(server.port(), 4096), second(server.port());
  ask(first, 20 << 20);  // far more than sockets hold; it is the only one
  first.read_until("\r\n\r\n");
  ask(second, 100);
  EXPECT_EQ(second.read_answer().status, 200);
  ask(second, 100'000);
  Answer answer = second.read_answer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.field("retry-after"), "1");
  std::string body;
  EXPECT_TRUE(first.read_exactly(20 << 20, body));
  ask(second, 20 << 20);
  EXPECT_EQ(second.read_answer().body.size(), size_t{20} << 20);
  // What a client leaves behind does not count for ever.
  ask(first, 20 << 20);
  first.read_until("\r\n\r\n");
  first.reset();
  for (int i = 0; i < 1000 && answer.status != 200; i++) {
    ask(second, 100'000);
    answer = second.read_answer();
  }
  EXPECT_EQ(answer.status, 200);
}

TEST(Stream, ends_with_an_error_frame_at_the_deadline_of_the_request) {
  ServerOptions options;
  options.deadlines.request_ms = 100;
  TestServer server(options);
  RawClient client(server.port());
  client.send(post("/stream"));
  const auto feed = Feeds::instance().take();
  feed->push("data: 1\n\n");
  const Answer answer = client.read_answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "data: 1\n\ndata: error the request took longer than 0.1 s\n\n");
  EXPECT_TRUE(client.at_end());
  EXPECT_TRUE(feed->dropped());
}

TEST(Stream, a_request_without_stream_ends_with_504_at_its_deadline) {
  ServerOptions options;
  options.deadlines.request_ms = 100;
  TestServer server(options);
  RawClient client(server.port());
  client.send(post("/wait"));
  const auto feed = Feeds::instance().take();
  EXPECT_EQ(client.read_answer().status, 504);
  EXPECT_TRUE(client.at_end());
  EXPECT_TRUE(feed->dropped());
}

// Nothing of a request is left: the page's own is the only one that is open.
void expect_nothing_open(TestServer& server, int connections) {
  const std::string page = RawClient(server.port()).ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").body;
  EXPECT_NE(page.find("\ninvar_http_requests_open 1\n"), std::string::npos) << page;
  EXPECT_NE(page.find(fmt::format("\ninvar_http_connections {}\n", connections + 1)), std::string::npos)
      << page;
}

TEST(Stream, ends_with_an_error_frame_when_its_exchange_throws) {
  TestServer server;
  RawClient client(server.port());
  client.send(post("/stream"));
  const auto feed = Feeds::instance().take();
  feed->push("data: 1\n\n");
  client.read_until("data: 1\n\n\r\n");
  feed->fail(Feed::Throw::kAdvance);
  const std::string rest = client.read_until("0\r\n\r\n");
  EXPECT_NE(rest.find("data: error internal error"), std::string::npos) << rest;
  EXPECT_EQ(rest.find("on purpose"), std::string::npos) << rest;
  EXPECT_TRUE(feed->dropped());
  expect_nothing_open(server, 1);
  EXPECT_EQ(client.ask(post("/echo", "alive")).body, "alive");
}

TEST(Stream, a_request_without_stream_is_500_when_its_exchange_throws) {
  TestServer server;
  RawClient client(server.port());
  for (const Feed::Throw where : {Feed::Throw::kAdvance, Feed::Throw::kResponse}) {
    client.send(post("/wait"));
    const auto feed = Feeds::instance().take();
    feed->push("half of it");
    feed->fail(where);
    const Answer answer = client.read_answer();
    EXPECT_EQ(answer.status, 500);
    EXPECT_TRUE(answer.body.starts_with("error internal_error: ")) << answer.body;
    EXPECT_EQ(answer.body.find("on purpose"), std::string::npos) << answer.body;
    EXPECT_TRUE(feed->dropped());
    expect_nothing_open(server, 1);
  }
  EXPECT_EQ(client.ask(post("/echo", "alive")).body, "alive");
}

TEST(Stream, a_broken_exchange_cuts_its_connection_off_after_what_it_said) {
  TestServer server;
  for (const char* path : {"/stream", "/wait"}) {
    RawClient client(server.port());
    client.send(post(path) + post("/echo", "behind"));
    const auto feed = Feeds::instance().take();
    feed->push("data: 1\n\n");
    feed->break_off("data: 2\n\n");
    const std::string all = client.read_to_end();
    if (path == std::string_view("/stream")) {
      EXPECT_NE(all.find("data: 1\n\n"), std::string::npos) << all;
      EXPECT_TRUE(all.ends_with("data: 2\n\n\r\n")) << all;  // without the last chunk
    } else {
      EXPECT_EQ(all, "");
    }
    EXPECT_TRUE(feed->dropped());
    expect_nothing_open(server, 0);
  }
}

TEST(Stream, silent_streams_are_pinged) {
  ServerOptions options;
  options.deadlines.ping_ms = 20;
  TestServer server(options);
  RawClient client(server.port());
  client.send(post("/stream"));
  const auto feed = Feeds::instance().take();
  client.read_until("\r\n\r\n");
  for (int i = 0; i < 3; i++)
    EXPECT_EQ(client.read_until("\n\n\r\n"), "8\r\n: ping\n\n\r\n");
  feed->push("data: 1\n\n", true);
  EXPECT_FALSE(client.read_until("0\r\n\r\n").empty());
}

TEST(Stream, two_hundred_resets_in_mid_stream_leave_nothing_behind) {
  TestServer server;
  for (int i = 0; i < 200; i++) {
    RawClient client(server.port());
    client.send(post(i % 2 == 0 ? "/stream" : "/wait"));
    const auto feed = Feeds::instance().take();
    ASSERT_NE(feed, nullptr);
    feed->push("data: x\n\n");
    client.reset();
    ASSERT_TRUE(feed->dropped()) << i;
  }
  expect_nothing_open(server, 0);
}

}  // namespace
}  // namespace invar::server
