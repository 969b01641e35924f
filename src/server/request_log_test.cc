#include "server/request_log.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/base64.h"
#include "server/request_log_reader.h"
#include "server/response_head.h"
#include "server/testing/raw_client.h"
#include "server/testing/test_protocol.h"

namespace invar::server {
namespace {

namespace fs = std::filesystem;
using testing::Feeds;
using testing::RawClient;
using testing::TestServer;

class RequestLogTest : public ::testing::Test {
 protected:
  RequestLogTest()
      : dir_(fmt::format("{}request-log-{}-{}", ::testing::TempDir(), ::getpid(),
                         ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(dir_);
  }
  ~RequestLogTest() override { fs::remove_all(dir_); }

  LoggedRequests read() {
    auto read = read_request_log(dir_);
    EXPECT_TRUE(read.ok()) << read.status().message();
    return read.ok() ? *read : LoggedRequests{};
  }

  const std::string dir_;
};

std::string post(std::string_view path, std::string_view body, std::string_view more = "") {
  return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n{}\r\n{}", path, body.size(), more,
                     body);
}

TEST_F(RequestLogTest, holds_what_was_sent_and_what_came_back_without_keys) {
  ServerOptions options;
  options.request_log_dir = dir_;
  options.api_keys = {"secret"};
  TestServer server(options);
  const std::string binary("\x00\xff\"\\\n\x80", 6);
  RawClient client(server.port());
  client.ask(post("/echo?q=1", binary, "X-Api-Key: secret\r\nCookie: secret\r\nX-Other: kept\r\n"));
  client.send(post("/stream", R"({"a":"ä"})", "Authorization: Bearer secret\r\n"));
  const auto feed = Feeds::instance().take();
  feed->push("data: 1\n\ndata: 2\n\n");
  client.read_until("data: 2\n\n");
  feed->push("data: [DONE]\n\n", true);
  client.read_until("0\r\n\r\n");
  client.ask("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  server.stop();

  std::ifstream file(dir_ + "/requests-000001.jsonl");
  const std::string raw((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(raw.find("secret"), std::string::npos) << raw;

  const LoggedRequests log = read();
  EXPECT_EQ(log.damaged_lines, 0u);
  ASSERT_EQ(log.requests.size(), 2u);
  const LoggedRequest& echo = log.requests[0];
  EXPECT_EQ(echo.method, "POST");
  EXPECT_EQ(echo.target, "/echo?q=1");
  EXPECT_EQ(echo.fields, (Fields{{"host", "x"}, {"content-length", "6"}, {"x-other", "kept"}}));
  EXPECT_EQ(echo.body, binary);
  EXPECT_EQ(echo.answer, binary);
  EXPECT_EQ(echo.status, 200);
  EXPECT_EQ(echo.outcome, "done");
  const LoggedRequest& stream = log.requests[1];
  EXPECT_EQ(stream.body, R"({"a":"ä"})");
  ASSERT_EQ(stream.frames.size(), 3u);
  EXPECT_EQ(stream.frames[0].data, "data: 1\n\n");
  EXPECT_EQ(stream.frames[1].data, "data: 2\n\n");
  EXPECT_EQ(stream.frames[2].data, "data: [DONE]\n\n");
  EXPECT_LE(stream.frames[0].ms, stream.frames[2].ms);
  EXPECT_GT(stream.frames[0].ms, 0);
}

TEST_F(RequestLogTest, keys_are_removed_wherever_they_stand_and_files_are_for_the_owner) {
  ServerOptions options;
  options.request_log_dir = dir_;
  options.api_keys = {"secret"};
  TestServer server(options);
  RawClient client(server.port());
  client.ask(post(
      "/echo?api_key=secret&q=1", "x",
      "Authorization: Bearer secret\r\nApi-Key: secret\r\nX-Auth: Token secret\r\nX-Other: secrets\r\n"));
  server.stop();
  const LoggedRequests log = read();
  ASSERT_EQ(log.requests.size(), 1u);
  EXPECT_EQ(log.requests[0].target, "/echo");
  EXPECT_EQ(log.requests[0].fields, (Fields{{"host", "x"}, {"content-length", "1"}, {"x-other", "secrets"}}));
  EXPECT_EQ(fs::status(dir_).permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(dir_ + "/requests-000001.jsonl").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

RequestRecord record(std::string id) {
  RequestRecord made;
  made.id = std::move(id);
  made.outcome = "done";
  return made;
}

TEST_F(RequestLogTest, files_are_rotated_and_the_oldest_go) {
  for (int round = 0; round < 2; round++) {
    auto log = RequestLog::open(dir_, 20'000, 100'000);
    ASSERT_TRUE(log.ok()) << log.status().message();
    for (int i = 0; i < 40; i++) {
      const RequestRecord r = record(fmt::format("r{}-{:02}", round, i));
      (*log)->request(r, "POST / HTTP/1.1\r\nHost: x\r\n", std::string(5000, 'x'));
      (*log)->end(r);
      // One at a time, so that the files are cut where they would be on a quiet server.
      if (i % 8 == 7) {
        *log = nullptr;
        log = RequestLog::open(dir_, 20'000, 100'000);
        ASSERT_TRUE(log.ok());
      }
    }
  }
  uint64_t total = 0, files = 0;
  for (const auto& entry : fs::directory_iterator(dir_)) {
    total += entry.file_size();
    files++;
  }
  EXPECT_LE(total, 150'000u);
  EXPECT_GT(files, 1u);
  EXPECT_FALSE(fs::exists(dir_ + "/requests-000001.jsonl"));
  const LoggedRequests log = read();
  ASSERT_FALSE(log.requests.empty());
  EXPECT_EQ(log.requests.back().id, "r1-39");
}

TEST_F(RequestLogTest, a_disk_that_refuses_ends_the_log_and_nothing_else) {
  ServerOptions options;
  options.request_log_dir = dir_;
  options.request_log_file_bytes = 1;  // so that every write needs a new file
  TestServer server(options);
  RawClient client(server.port());
  fs::remove_all(dir_);
  for (int i = 0; i < 20; i++)
    EXPECT_EQ(client.ask(post("/echo", "x")).body, "x");
  server.stop();
  EXPECT_FALSE(fs::exists(dir_));
}

TEST_F(RequestLogTest, damaged_lines_are_counted_and_skipped) {
  fs::create_directories(dir_);
  std::ofstream(dir_ + "/requests-000001.jsonl")
      << R"({"t":"frame","id":"earlier","ms":1,"data":"x"})" << "\n"
      << R"({"t":"request","id":"a","head":"POST /x HTTP/1.1\r\nHost: x\r\nA: b\r\n","body":"1"})" << "\n"
      << "garbage\n"
      << R"({"t":"answer","id":"a","ms":1,"status":200,"content_type":"text/plain","body64":"AP8="})" << "\n"
      << R"({"t":"lost","count":3})" << "\n"
      << R"([])" << "\n"
      << R"({"t":"request","id":"b","head":"nonsense","body":"1"})" << "\n"
      << R"({"t":"request","id":"c","head":"GET /y HTTP/1.1\r\nHost: x\r\n","body":[1]})" << "\n"
      << R"({"t":"end","id":"a","ms":2,"outcome":"done"})" << "\n"
      << R"({"t":"request","id":"d","he)";
  const LoggedRequests log = read();
  EXPECT_EQ(log.damaged_lines, 4u);
  EXPECT_EQ(log.lost_lines, 3u);
  ASSERT_EQ(log.requests.size(), 2u);
  EXPECT_EQ(log.requests[0].answer, std::string("\x00\xff", 2));
  EXPECT_EQ(log.requests[1].target, "/y");
  EXPECT_EQ(log.requests[1].outcome, "");
}

TEST_F(RequestLogTest, numbers_out_of_range_are_cut_to_it) {
  fs::create_directories(dir_);
  std::ofstream(dir_ + "/requests-000001.jsonl")
      << R"({"t":"lost","count":1e300})" << "\n"
      << R"({"t":"request","id":"a","head":"GET /x HTTP/1.1\r\nHost: x\r\n","body":""})" << "\n"
      << R"({"t":"answer","id":"a","ms":-1e300,"status":1e300,"content_type":"text/event-stream"})" << "\n"
      << R"({"t":"frame","id":"a","ms":-5,"data":"x"})" << "\n"
      << R"({"t":"end","id":"a","ms":2,"outcome":"done"})" << "\n";
  const LoggedRequests log = read();
  EXPECT_EQ(log.lost_lines, 1'000'000'000'000'000u);
  ASSERT_EQ(log.requests.size(), 1u);
  EXPECT_EQ(log.requests[0].status, 999);
  ASSERT_EQ(log.requests[0].frames.size(), 1u);
  EXPECT_EQ(log.requests[0].frames[0].ms, 0);
}

TEST_F(RequestLogTest, a_line_beyond_the_bound_is_an_error_that_names_it) {
  fs::create_directories(dir_);
  const std::string path = dir_ + "/requests-000001.jsonl";
  const std::string head = R"({"t":"request","id":"a","head":"POST /x HTTP/1.1\r\nHost: x\r\n","body":")";
  const auto read_with = [&](size_t line_bytes) {
    std::ofstream(path) << R"({"t":"lost","count":1})" << "\n"
                        << head + std::string(line_bytes - head.size() - 2, 'x') + "\"}" << "\n"
                        << R"({"t":"end","id":"a","ms":2,"outcome":"done"})" << "\n";
    return read_request_log(dir_, 200'000);
  };
  // Around the bound, and around the blocks that are read.
  for (const size_t size :
       {100'000, 65'536 - 23, 65'536 - 24, 65'536 - 22, 2 * 65'536 - 24, 199'999, 200'000}) {
    const auto log = read_with(size);
    ASSERT_TRUE(log.ok()) << size << ": " << log.status().message();
    EXPECT_EQ(log->damaged_lines, 0u) << size;
    ASSERT_EQ(log->requests.size(), 1u) << size;
    EXPECT_EQ(log->requests[0].body.size(), size - head.size() - 2);
  }
  for (const size_t size : {200'001, 300'000}) {
    const auto log = read_with(size);
    ASSERT_FALSE(log.ok()) << size;
    const std::string& message = log.status().message();
    for (const std::string& part : {path, std::string("line 2"), std::string("200000 bytes")})
      EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST_F(RequestLogTest, memory_for_a_file_without_line_ends_is_bounded) {
  fs::create_directories(dir_);
  const std::string path = dir_ + "/requests-000001.jsonl";
  std::ofstream(path) << "x";
  fs::resize_file(path, uint64_t{1} << 36);  // with a hole: no disk is used
  const auto log = read_request_log(path, 1 << 20);
  ASSERT_FALSE(log.ok());
  EXPECT_NE(log.status().message().find("line 1 has more than"), std::string::npos) << log.status().message();
}

TEST_F(RequestLogTest, a_directory_that_cannot_be_made_is_an_error_that_names_the_flag) {
  std::ofstream(dir_) << "a file";
  const auto log = RequestLog::open(dir_ + "/below", 1000, 1000);
  ASSERT_FALSE(log.ok());
  EXPECT_NE(log.status().message().find("--request-log"), std::string::npos) << log.status().message();
  EXPECT_FALSE(read_request_log(dir_ + "/nothing").ok());
}

TEST(Base64, round_trip_and_refusal) {
  std::string bytes;
  for (int i = 0; i < 300; i++) {
    EXPECT_EQ(base64_bytes(base64_text(bytes)), bytes);
    bytes.push_back(char(i * 7));
  }
  EXPECT_EQ(base64_text("Man"), "TWFu");
  EXPECT_EQ(base64_text("Ma"), "TWE=");
  EXPECT_EQ(base64_text("M"), "TQ==");
  for (const char* bad : {"A", "AB", "ABC", "A===", "AB=C", "AB!=", "====="})
    EXPECT_FALSE(base64_bytes(bad)) << bad;
}

}  // namespace
}  // namespace invar::server
