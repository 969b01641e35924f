#include "cli/log_replay.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "api/service.h"

namespace invar {
namespace {

using server::LoggedRequest;

// Gives the answer that a test wants, and keeps what was asked.
class FakeTarget final : public ApiTarget {
 public:
  Result<ApiReply> send(const ApiRequest& request, const StreamSink&) override {
    asked.push_back(request);
    if (!error.ok()) return error;
    return reply;
  }
  void cancel() override {}
  void resume() override {}
  const api::Service* service() const override { return local ? &service_ : nullptr; }

  ApiReply reply;
  Status error;
  bool local = false;
  std::vector<ApiRequest> asked;

 private:
  api::Service service_;
};

LoggedRequest body_request() {
  LoggedRequest r;
  r.method = "POST";
  r.target = "/v1/completions";
  r.fields = {{"host", "a"}, {"content-length", "3"}, {"x-other", "kept"}};
  r.body = R"({"prompt":"a"})";
  r.status = 200;
  r.content_type = "application/json";
  r.answer = R"({"id":"1","model":"m","choices":[{"index":0,"text":"b"}],"invar":{"seed":7}})";
  r.outcome = "done";
  return r;
}

LoggedRequest stream_request() {
  LoggedRequest r = body_request();
  r.content_type = "text/event-stream; charset=utf-8";
  r.answer = "";
  r.frames = {{1, "data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\"b\"}]}\n\n"},
              {2, ": ping\n\n"},
              {3, "data: {\"choices\":[{\"index\":0,\"text\":\"c\"}],\"invar\":{\"seed\":7}}\n\n"},
              {4, "data: [DONE]\n\n"}};
  return r;
}

FakeTarget answering(int status, const std::string& type, const std::string& body) {
  FakeTarget target;
  target.reply.status = status;
  target.reply.content_type = type;
  target.reply.body = body;
  return target;
}

TEST(LogReplay, equal_answers_are_the_same_and_the_seed_comes_from_the_receipt) {
  const LoggedRequest logged = body_request();
  FakeTarget target =
      answering(200, "application/json",
                R"({"id":"2","model":"m","choices":[{"index":0,"text":"b"}],"invar":{"seed":7}})");
  const auto outcome = replay_request(logged, target);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->skipped, "");
  EXPECT_FALSE(outcome->difference);
  ASSERT_EQ(target.asked.size(), 1u);
  EXPECT_EQ(boost::json::parse(target.asked[0].body), boost::json::parse(R"({"prompt":"a","seed":7})"));
  const std::vector<std::pair<std::string, std::string>> fields = {{"x-other", "kept"}};
  EXPECT_EQ(target.asked[0].fields, fields);
}

TEST(LogReplay, names_status_type_and_frame_that_differ) {
  FakeTarget target = answering(400, "application/json", "{}");
  EXPECT_EQ(replay_request(body_request(), target)->difference->field, "status");
  EXPECT_EQ(replay_request(body_request(), target)->difference->replayed, "400");
  target = answering(200, "text/event-stream", "");
  EXPECT_EQ(replay_request(body_request(), target)->difference->field, "content-type");
  target = answering(
      200, "text/event-stream",
      "data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\"bd\"}],\"invar\":{\"seed\":7}}\n\n"
      "data: [DONE]\n\n");
  const auto outcome = replay_request(stream_request(), target);
  ASSERT_TRUE(outcome.ok() && outcome->difference.has_value());
  EXPECT_EQ(outcome->frames, 3u);
  EXPECT_EQ(outcome->difference->frame, 2u);
  EXPECT_EQ(outcome->difference->field, "choices[0].text");
  EXPECT_EQ(outcome->difference->recorded, "\"bc\"");
  EXPECT_EQ(outcome->difference->replayed, "\"bd\"");
}

TEST(LogReplay, a_record_that_ends_early_is_compared_as_far_as_it_goes) {
  LoggedRequest logged = stream_request();
  logged.frames.resize(1);
  logged.outcome = "client gone";
  FakeTarget target = answering(200, "text/event-stream", "");
  EXPECT_NE(replay_request(logged, target)->skipped.find("random seed"), std::string::npos);
  EXPECT_TRUE(target.asked.empty());
  logged.body = R"({"prompt":"a","temperature":0})";
  target.reply.body =
      "data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\"bc\"}]}\n\ndata: [DONE]\n\n";
  const auto outcome = replay_request(logged, target);
  EXPECT_EQ(outcome->skipped, "");
  EXPECT_FALSE(outcome->whole);
  EXPECT_FALSE(outcome->difference) << outcome->difference->field;
}

TEST(LogReplay, what_was_about_the_connection_is_not_sent) {
  FakeTarget target = answering(200, "application/json", "{}");
  LoggedRequest logged = body_request();
  for (const int status : {0, 401, 415}) {
    logged.status = status;
    EXPECT_NE(replay_request(logged, target)->skipped, "") << status;
  }
  logged = body_request();
  logged.method = "OPTIONS";
  target.local = true;
  EXPECT_NE(replay_request(logged, target)->skipped, "");
  EXPECT_TRUE(target.asked.empty());
  logged = body_request();
  logged.status = 429;
  EXPECT_NE(replay_request(logged, target)->skipped.find("load"), std::string::npos);
  target.error = invalid_argument("not a request");
  EXPECT_EQ(replay_request(logged, target)->skipped, "not a request");
  target.error = Status(Code::kUnavailable, "gone");
  EXPECT_EQ(replay_request(logged, target).status().code(), Code::kUnavailable);
}

TEST(LogReplay, the_bodies_of_answers_to_head_do_not_count) {
  LoggedRequest logged = body_request();
  logged.method = "HEAD";
  FakeTarget target = answering(200, "application/json", "");
  EXPECT_FALSE(replay_request(logged, target)->difference);
}

TEST(LogReplay, the_model_is_named_by_the_recorded_answers) {
  server::LoggedRequests log;
  EXPECT_EQ(recorded_model(log), "");
  log.requests = {LoggedRequest{}, stream_request()};
  EXPECT_EQ(recorded_model(log), "m");
}

}  // namespace
}  // namespace invar
