#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/receipt.h"
#include "api/testing/fake_service.h"

namespace invar::api {
namespace {

namespace json = boost::json;

constexpr char kPath[] = "/v1/chat/completions";

std::string chat(const std::string& more) {
  return R"({"messages":[{"role":"user","content":"Hi"}])" + (more.empty() ? "" : "," + more) + "}";
}

// What a client makes of a stream.
struct Collected {
  std::string content, finish;
  json::array logprobs;
  int roles = 0, finishes = 0;
};

std::vector<Collected> collect(const std::vector<json::value>& frames, size_t choices) {
  std::vector<Collected> out(choices);
  for (const json::value& frame : frames) {
    EXPECT_EQ(frame.at("object").as_string(), "chat.completion.chunk");
    EXPECT_EQ(frame.at("id"), frames[0].at("id"));
    EXPECT_EQ(frame.at("created"), frames[0].at("created"));
    EXPECT_EQ(frame.at("model").as_string(), "tiny");
    EXPECT_EQ(frame.at("system_fingerprint").as_string(), "fp_1");
    for (const json::value& c : frame.at("choices").as_array()) {
      Collected& choice = out.at(c.at("index").to_number<size_t>());
      const json::object& delta = c.at("delta").as_object();
      EXPECT_TRUE(c.as_object().contains("logprobs"));
      EXPECT_EQ(choice.finishes, 0) << "after the end";
      if (delta.contains("role")) {
        ++choice.roles;
        EXPECT_EQ(delta.at("role").as_string(), "assistant");
        EXPECT_TRUE(delta.at("refusal").is_null());
        EXPECT_EQ(choice.content, "");
      }
      EXPECT_EQ(choice.roles, 1) << "the first delta has the role";
      if (delta.contains("content")) choice.content += std::string(delta.at("content").as_string());
      if (!c.at("logprobs").is_null())
        for (const json::value& entry : c.at("logprobs").at("content").as_array())
          choice.logprobs.push_back(entry);
      if (c.at("finish_reason").is_null()) continue;
      ++choice.finishes;
      choice.finish = c.at("finish_reason").as_string();
      EXPECT_TRUE(delta.empty()) << "the finish chunk has no content";
    }
  }
  for (const Collected& choice : out)
    EXPECT_EQ(choice.finishes, 1);
  return out;
}

TEST(OpenAiChat, streams_deltas_and_ends_with_done) {
  FakeService fake;
  const auto exchange = fake.post_exchange(kPath, chat(R"("stream":true,"seed":7)"));
  ASSERT_TRUE(exchange->streaming());
  Stream& stream = *fake.submitted.at(0)->streams.at(0);
  std::string out;
  EXPECT_FALSE(exchange->advance(out));
  EXPECT_EQ(out, "") << "nothing is there yet";
  stream.push(token_event(fake.id("Hello")));
  EXPECT_FALSE(exchange->advance(out));
  const size_t first = out.size();
  EXPECT_THAT(out, testing::HasSubstr("Hello"));
  fake.say(stream, " \"you\"\n");
  EXPECT_TRUE(exchange->advance(out));
  EXPECT_EQ(std::count(out.begin() + ptrdiff_t(first), out.end(), '{') > 0, true);

  const auto frames = frames_of(out);
  ASSERT_EQ(frames.size(), 4u) << "role, first token, all tokens of the second batch, finish";
  const Collected answer = collect(frames, 1)[0];
  EXPECT_EQ(answer.content, "Hello \"you\"\n");
  EXPECT_EQ(answer.finish, "stop");
  for (const json::value& frame : frames)
    EXPECT_FALSE(frame.as_object().contains("usage")) << "not asked for";
  for (size_t i = 0; i + 1 < frames.size(); ++i)
    EXPECT_FALSE(frames[i].as_object().contains("invar"));
  const json::value& receipt = frames.back().at("invar");
  EXPECT_EQ(receipt.at("model_digest").as_string(), "sha256:abc");
  EXPECT_EQ(receipt.at("numerics").as_string(), "cpu-1");
  EXPECT_EQ(receipt.at("kv").as_string(), "f16");
  EXPECT_EQ(receipt.at("seed"), 7);
  EXPECT_EQ(receipt.at("output_digest").as_string(), output_digest(IdLists{fake.ids("Hello \"you\"\n")}));
  EXPECT_EQ(exchange->facts().finish, "stop");
  EXPECT_EQ(exchange->facts().generated_tokens, 8);
}

TEST(OpenAiChat, usage_comes_in_a_chunk_of_its_own_when_asked_for) {
  FakeService fake;
  const auto exchange =
      fake.post_exchange(kPath, chat(R"("stream":true,"stream_options":{"include_usage":true})"));
  fake.say(*fake.submitted.at(0)->streams.at(0), "Hello!");
  std::string out;
  ASSERT_TRUE(exchange->advance(out));
  const auto frames = frames_of(out);
  collect(frames, 1);
  for (size_t i = 0; i + 1 < frames.size(); ++i) {
    EXPECT_TRUE(frames[i].at("usage").is_null());
    EXPECT_FALSE(frames[i].as_object().contains("invar"));
  }
  const json::value& last = frames.back();
  EXPECT_TRUE(last.at("choices").as_array().empty());
  EXPECT_EQ(last.at("usage").at("completion_tokens"), 2);
  const int64_t prompt = int64_t(fake.submitted.at(0)->request.prompt.size());
  EXPECT_EQ(last.at("usage").at("prompt_tokens"), prompt);
  EXPECT_EQ(last.at("usage").at("total_tokens"), prompt + 2);
  EXPECT_EQ(last.at("usage").at("prompt_tokens_details").at("cached_tokens"), 0);
  EXPECT_TRUE(last.as_object().contains("invar"));
}

TEST(OpenAiChat, one_body_says_the_same_as_the_stream) {
  FakeService fake;
  const auto exchange = fake.post_exchange(kPath, chat(R"("n":2,"seed":-5)"));
  ASSERT_FALSE(exchange->streaming());
  Submitted& submitted = *fake.submitted.at(0);
  ASSERT_EQ(submitted.streams.size(), 2u);
  fake.say(*submitted.streams[1], "Hell", FinishReason::kLength);
  std::string out;
  EXPECT_FALSE(exchange->advance(out));
  fake.say(*submitted.streams[0], "Hello");
  EXPECT_TRUE(exchange->advance(out));
  EXPECT_EQ(out, "");
  const Response response = exchange->response();
  EXPECT_EQ(response.status, 200);
  const json::value body = parsed(response.body);
  EXPECT_EQ(body.at("object").as_string(), "chat.completion");
  EXPECT_TRUE(std::string_view(body.at("id").as_string()).starts_with("chatcmpl-"));
  EXPECT_EQ(body.at("model").as_string(), "tiny");
  EXPECT_EQ(body.at("system_fingerprint").as_string(), "fp_1");
  const json::array& choices = body.at("choices").as_array();
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choices[0].at("index"), 0);
  EXPECT_EQ(choices[0].at("message").at("role").as_string(), "assistant");
  EXPECT_EQ(choices[0].at("message").at("content").as_string(), "Hello");
  EXPECT_TRUE(choices[0].at("message").at("refusal").is_null());
  EXPECT_TRUE(choices[0].at("logprobs").is_null());
  EXPECT_EQ(choices[0].at("finish_reason").as_string(), "stop");
  EXPECT_EQ(choices[1].at("message").at("content").as_string(), "Hell");
  EXPECT_EQ(choices[1].at("finish_reason").as_string(), "length");
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 2);
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), int64_t(submitted.request.prompt.size())) << "counted once";
  EXPECT_EQ(body.at("invar").at("seed"), -5) << "as it was sent";
  EXPECT_EQ(body.at("invar").at("output_digest").as_string(),
            output_digest(IdLists{fake.ids("Hello"), fake.ids("Hell")}));
  EXPECT_EQ(exchange->facts().finish, "stop,length");
}

TEST(OpenAiChat, choices_of_a_stream_interleave) {
  FakeService fake;
  const auto exchange = fake.post_exchange(kPath, chat(R"("n":2,"stream":true)"));
  Submitted& submitted = *fake.submitted.at(0);
  std::string out;
  submitted.streams[1]->push(token_event(fake.id("x")));
  EXPECT_FALSE(exchange->advance(out));
  fake.say(*submitted.streams[0], "ab");
  EXPECT_FALSE(exchange->advance(out));
  fake.say(*submitted.streams[1], "y", FinishReason::kLength);
  EXPECT_TRUE(exchange->advance(out));
  const auto frames = frames_of(out);
  const auto answers = collect(frames, 2);
  EXPECT_EQ(answers[0].content, "ab");
  EXPECT_EQ(answers[1].content, "xy");
  EXPECT_EQ(answers[1].finish, "length");
  int receipts = 0;
  for (const json::value& frame : frames)
    receipts += frame.as_object().contains("invar");
  EXPECT_EQ(receipts, 1);
  EXPECT_TRUE(frames.back().as_object().contains("invar"));
}

TEST(OpenAiChat, logprobs_have_an_entry_per_token_whose_bytes_are_the_content) {
  FakeService fake;
  for (const bool streaming : {false, true}) {
    const auto exchange = fake.post_exchange(
        kPath, chat(fmt::format(R"("logprobs":true,"top_logprobs":2,"stream":{})", streaming)));
    ASSERT_EQ(fake.submitted.back()->request.sampling.logprobs, 2);
    Stream& stream = *fake.submitted.back()->streams.at(0);
    const std::string text = "Hello \xF0\x9F\x98\x80!";
    std::string out;
    for (const int32_t id : fake.ids(text)) {
      stream.push(token_event(id, -0.1f, {{id, -0.1f}, {fake.id("x"), -2.5f}}));
      exchange->advance(out);
    }
    stream.push(end_event(FinishReason::kStop));
    ASSERT_TRUE(exchange->advance(out));
    Collected answer;
    if (streaming) {
      answer = collect(frames_of(out), 1)[0];
    } else {
      const json::value body = parsed(exchange->response().body);
      answer.content = body.at("choices").at(0).at("message").at("content").as_string();
      EXPECT_TRUE(body.at("choices").at(0).at("logprobs").at("refusal").is_null());
      answer.logprobs = body.at("choices").at(0).at("logprobs").at("content").as_array();
    }
    EXPECT_EQ(answer.content, text);
    ASSERT_EQ(answer.logprobs.size(), 7u);
    std::string bytes;
    for (const json::value& entry : answer.logprobs) {
      for (const json::value& byte : entry.at("bytes").as_array())
        bytes += char(byte.to_number<int>());
      EXPECT_EQ(entry.at("logprob").to_number<float>(), -0.1f) << "bit for bit";
      EXPECT_EQ(entry.at("top_logprobs").as_array().size(), 2u);
      EXPECT_EQ(entry.at("top_logprobs").at(1).at("token").as_string(), "x");
      EXPECT_EQ(entry.at("top_logprobs").at(1).at("logprob").to_number<float>(), -2.5f);
    }
    EXPECT_EQ(bytes, text);
    EXPECT_EQ(answer.logprobs[0].at("token").as_string(), "Hello");
    EXPECT_EQ(answer.logprobs[0].at("id"), fake.id("Hello"));
  }
}

TEST(OpenAiChat, a_stop_string_over_tokens_never_shows) {
  FakeService fake;
  const auto exchange = fake.post_exchange(kPath, chat(R"("stop":["END","EN?"],"stream":true)"));
  Submitted& submitted = *fake.submitted.at(0);
  ASSERT_NE(submitted.request.guard, nullptr);
  Stream& stream = *submitted.streams[0];
  std::string out;
  for (const char c : std::string("go EN.END")) {
    const int32_t id = fake.id(std::string(1, c));
    const bool stop = submitted.request.guard->accept(id).action == Verdict::Action::kStop;
    TokenEvent event = token_event(id);
    if (stop) event.finish = FinishReason::kStop;
    stream.push(std::move(event));
    if (stop) break;
    EXPECT_FALSE(exchange->advance(out));
  }
  EXPECT_TRUE(exchange->advance(out));
  const Collected answer = collect(frames_of(out), 1)[0];
  EXPECT_EQ(answer.content, "go EN.");
  EXPECT_EQ(answer.finish, "stop");
  EXPECT_EQ(exchange->facts().generated_tokens, 9);
}

TEST(OpenAiChat, what_is_held_back_for_a_stop_string_comes_at_the_end) {
  FakeService fake;
  const auto exchange = fake.post_exchange(kPath, chat(R"("stop":"END","stream":true)"));
  fake.say(*fake.submitted.at(0)->streams[0], "the EN", FinishReason::kLength);
  std::string out;
  EXPECT_TRUE(exchange->advance(out));
  const Collected answer = collect(frames_of(out), 1)[0];
  EXPECT_EQ(answer.content, "the EN");
  EXPECT_EQ(answer.finish, "length");
}

TEST(OpenAiChat, an_empty_answer_still_has_role_and_finish) {
  FakeService fake;
  const auto exchange = fake.post_exchange(kPath, chat(R"("stream":true)"));
  fake.say(*fake.submitted.at(0)->streams[0], "");
  std::string out;
  EXPECT_TRUE(exchange->advance(out));
  EXPECT_EQ(frames_of(out).size(), 2u);
  EXPECT_EQ(collect(frames_of(out), 1)[0].content, "");
}

TEST(OpenAiChat, a_failure_in_the_middle_is_an_error_frame_and_stops_the_other_choices) {
  FakeService fake;
  const auto exchange = fake.post_exchange(kPath, chat(R"("stream":true,"n":2)"));
  Submitted& submitted = *fake.submitted.at(0);
  std::string out;
  submitted.streams[0]->push(token_event(fake.id("x")));
  EXPECT_FALSE(exchange->advance(out));
  TokenEvent failed = end_event(FinishReason::kError);
  failed.error = internal_error("the numbers broke");
  submitted.streams[0]->push(std::move(failed));
  out.clear();
  EXPECT_TRUE(exchange->advance(out));
  EXPECT_TRUE(submitted.streams[1]->cancelled());
  ASSERT_TRUE(out.starts_with("data: "));
  const json::value frame = parsed(out.substr(6, out.size() - 8));
  EXPECT_EQ(frame.at("error").at("message").as_string(), "the numbers broke");
  EXPECT_EQ(frame.at("error").at("type").as_string(), "server_error");
  out.clear();
  EXPECT_TRUE(exchange->advance(out));
  EXPECT_EQ(out, "") << "once";
  EXPECT_EQ(exchange->facts().finish, "error");
}

TEST(OpenAiChat, a_failure_of_one_body_is_its_status) {
  FakeService fake;
  const auto exchange = fake.post_exchange(kPath, chat(""));
  fake.say(*fake.submitted.at(0)->streams[0], "x", FinishReason::kCancelled);
  std::string out;
  EXPECT_TRUE(exchange->advance(out));
  EXPECT_EQ(out, "");
  EXPECT_EQ(exchange->response().status, 503);
}

TEST(OpenAiChat, dropping_the_exchange_cancels_its_streams) {
  FakeService fake;
  auto exchange = fake.post_exchange(kPath, chat(R"("n":2)"));
  const auto streams = fake.submitted.at(0)->streams;
  fake.say(*streams[0], "x");
  std::string out;
  EXPECT_FALSE(exchange->advance(out));
  EXPECT_FALSE(streams[1]->cancelled());
  exchange.reset();
  EXPECT_TRUE(streams[1]->cancelled());
}

TEST(OpenAiChat, the_server_can_end_a_stream_with_an_error) {
  FakeService fake;
  const auto exchange = fake.post_exchange(kPath, chat(R"("stream":true)"));
  const std::string frame = exchange->error_frame({504, "the deadline has passed", "", "request_timeout"});
  ASSERT_TRUE(frame.starts_with("data: ") && frame.ends_with("\n\n"));
  const json::value body = parsed(frame.substr(6));
  EXPECT_EQ(body.at("error").at("message").as_string(), "the deadline has passed");
  EXPECT_EQ(body.at("error").at("type").as_string(), "server_error");
  EXPECT_EQ(body.at("error").at("code").as_string(), "request_timeout");
}

TEST(Receipt, the_digest_is_over_counts_and_ids) {
  // SHA-256 of 02000000 01000000 ff010000 00000000
  EXPECT_EQ(output_digest(IdLists{{1, 511}, {}}),
            "9a5dc393cd34d920b7ca7295e5bfa997d0ffac37d9b3df24b0bc9f3239a401d6");
  EXPECT_NE(output_digest(IdLists{{1}, {2}}), output_digest(IdLists{{1, 2}, {}}));
}

}  // namespace
}  // namespace invar::api
