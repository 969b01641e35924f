#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/receipt.h"
#include "api/testing/fake_service.h"

namespace invar::api {
namespace {

namespace json = boost::json;
using testing::ElementsAre;

constexpr char kPath[] = "/v1/completions";

// Scores of a prompt as the engine tells them: none for the first token.
void score_prompt(Submitted& submitted, float logprob) {
  for (size_t i = 0; i < submitted.request.prompt.size(); ++i) {
    const int32_t id = submitted.request.prompt[i];
    TokenEvent event = token_event(id, i == 0 ? 0 : logprob);
    if (i > 0 && submitted.request.prompt_logprobs > 0) event.alternatives = {{id, logprob}};
    event.of_prompt = true;
    submitted.streams[0]->push(std::move(event));
  }
}

json::value body_of(Exchange& exchange) {
  std::string out;
  EXPECT_TRUE(exchange.advance(out));
  EXPECT_EQ(out, "");
  const Response response = exchange.response();
  EXPECT_EQ(response.status, 200);
  return parsed(response.body);
}

std::vector<std::string> strings(const json::value& list) {
  std::vector<std::string> out;
  for (const json::value& value : list.as_array())
    out.push_back(value.is_null() ? "null" : std::string(value.as_string()));
  return out;
}
std::vector<int> ints(const json::value& list) {
  std::vector<int> out;
  for (const json::value& value : list.as_array())
    out.push_back(value.to_number<int>());
  return out;
}

TEST(OpenAiCompletions, answers_prompts_times_n_in_order) {
  FakeService fake;
  const auto exchange = fake.post_exchange(kPath, R"({"prompt":["a","b"],"n":2,"seed":3})");
  ASSERT_EQ(fake.submitted.size(), 2u);
  EXPECT_EQ(fake.submitted[1]->request.prompt, fake.ids("b"));
  int k = 0;
  for (const auto& submitted : fake.submitted)
    for (const auto& stream : submitted->streams)
      fake.say(*stream, std::string(1, char('p' + k++)), FinishReason::kLength);
  const json::value body = body_of(*exchange);
  EXPECT_EQ(body.at("object").as_string(), "text_completion");
  EXPECT_TRUE(std::string_view(body.at("id").as_string()).starts_with("cmpl-"));
  ASSERT_EQ(body.at("choices").as_array().size(), 4u);
  for (int i = 0; i < 4; ++i) {
    const json::value& choice = body.at("choices").at(size_t(i));
    EXPECT_EQ(choice.at("index"), i);
    EXPECT_EQ(choice.at("text").as_string(), std::string(1, char('p' + i)));
    EXPECT_EQ(choice.at("finish_reason").as_string(), "length");
    EXPECT_TRUE(choice.at("logprobs").is_null());
  }
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), 2);
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 4);
  EXPECT_EQ(body.at("invar").at("output_digest").as_string(),
            output_digest(IdLists{fake.ids("p"), fake.ids("q"), fake.ids("r"), fake.ids("s")}));
}

TEST(OpenAiCompletions, takes_token_ids_and_parses_control_tokens_of_raw_text) {
  FakeService fake;
  (void)fake.post_exchange(kPath, R"({"prompt":[72,262.0,101]})");
  EXPECT_THAT(fake.submitted.at(0)->request.prompt, ElementsAre(72, 262, 101));
  (void)fake.post_exchange(kPath, R"({"prompt":[[72],[73,74]]})");
  EXPECT_THAT(fake.submitted.at(2)->request.prompt, ElementsAre(73, 74));
  (void)fake.post_exchange(kPath, R"({"prompt":"<|im_start|>x"})");
  EXPECT_EQ(fake.submitted.at(3)->request.prompt, fake.ids("<|im_start|>x"));
}

TEST(OpenAiCompletions, streams_text) {
  FakeService fake;
  const auto exchange =
      fake.post_exchange(kPath, R"({"prompt":"a","stream":true,"stream_options":{"include_usage":true}})");
  Stream& stream = *fake.submitted.at(0)->streams.at(0);
  std::string out;
  stream.push(token_event(fake.id("Hello")));
  EXPECT_FALSE(exchange->advance(out));
  fake.say(stream, " you");
  EXPECT_TRUE(exchange->advance(out));
  const auto frames = frames_of(out);
  ASSERT_EQ(frames.size(), 4u);
  std::string text;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(frames[i].at("object").as_string(), "text_completion");
    EXPECT_EQ(frames[i].at("id"), frames[0].at("id"));
    text += std::string(frames[i].at("choices").at(0).at("text").as_string());
    EXPECT_EQ(frames[i].at("choices").at(0).at("finish_reason").is_null(), i != 2);
  }
  EXPECT_EQ(text, "Hello you");
  EXPECT_EQ(frames[2].at("choices").at(0).at("text").as_string(), "");
  EXPECT_TRUE(frames[3].at("choices").as_array().empty());
  EXPECT_EQ(frames[3].at("usage").at("completion_tokens"), 5);
  EXPECT_TRUE(frames[3].as_object().contains("invar"));
}

TEST(OpenAiCompletions, logprobs_have_the_four_lists) {
  FakeService fake;
  const auto exchange = fake.post_exchange(kPath, R"({"prompt":"a","logprobs":2})");
  EXPECT_EQ(fake.submitted.at(0)->request.sampling.logprobs, 2);
  Stream& stream = *fake.submitted.at(0)->streams.at(0);
  const int32_t x = fake.id("x"), y = fake.id("y");
  stream.push(token_event(fake.id("Hello"), -0.25f, {{fake.id("Hello"), -0.25f}, {x, -2.0f}}));
  for (const int32_t id : fake.ids("\xC3\xA9"))
    stream.push(token_event(id, -1.0f, {{x, -0.5f}, {y, -0.75f}}));
  stream.push(token_event(x, -1.0f));
  stream.push(end_event(FinishReason::kLength));
  const json::value body = body_of(*exchange);
  EXPECT_EQ(body.at("choices").at(0).at("text").as_string(), "Hello\xC3\xA9x");
  const json::value& logprobs = body.at("choices").at(0).at("logprobs");
  EXPECT_THAT(strings(logprobs.at("tokens")), ElementsAre("Hello", "bytes:\\xc3", "bytes:\\xa9", "x"));
  EXPECT_THAT(ints(logprobs.at("text_offset")), ElementsAre(0, 5, 5, 6));
  EXPECT_EQ(logprobs.at("token_logprobs").at(0).to_number<float>(), -0.25f);
  const json::object& top = logprobs.at("top_logprobs").at(0).as_object();
  EXPECT_EQ(top.size(), 2u);
  EXPECT_EQ(top.at("Hello").to_number<float>(), -0.25f);
  EXPECT_EQ(top.at("x").to_number<float>(), -2.0f);
  EXPECT_EQ(logprobs.at("top_logprobs").at(1).as_object().size(), 3u) << "the chosen token and the two best";
}

TEST(OpenAiCompletions, echo_puts_the_prompt_in_front) {
  FakeService fake;
  for (const bool streaming : {false, true}) {
    const auto exchange =
        fake.post_exchange(kPath, fmt::format(R"({{"prompt":"a<s>b","echo":true,"stream":{}}})", streaming));
    EXPECT_EQ(fake.submitted.back()->request.prompt_logprobs, -1);
    fake.say(*fake.submitted.back()->streams.at(0), "cd");
    if (!streaming) {
      EXPECT_EQ(body_of(*exchange).at("choices").at(0).at("text").as_string(), "a<s>bcd");
      continue;
    }
    std::string out, text;
    EXPECT_TRUE(exchange->advance(out));
    for (const json::value& frame : frames_of(out))
      text += std::string(frame.at("choices").at(0).at("text").as_string());
    EXPECT_EQ(text, "a<s>bcd");
  }
}

TEST(OpenAiCompletions, echo_with_logprobs_scores_the_prompt_for_every_choice) {
  FakeService fake;
  for (const bool streaming : {false, true}) {
    const auto exchange = fake.post_exchange(
        kPath,
        fmt::format(R"({{"prompt":"Hello you","echo":true,"logprobs":1,"n":2,"stream":{}}})", streaming));
    Submitted& submitted = *fake.submitted.back();
    EXPECT_EQ(submitted.request.prompt_logprobs, 1);
    std::string out;
    fake.say(*submitted.streams[1], "z");
    EXPECT_FALSE(exchange->advance(out));
    EXPECT_EQ(out, "") << "the prompt's scores come first";
    score_prompt(submitted, -0.125f);
    fake.say(*submitted.streams[0], "w");
    json::array tokens[2], offsets[2], scores[2];
    std::string text[2];
    const auto add = [&](const json::value& choice) {
      const size_t i = choice.at("index").to_number<size_t>();
      text[i] += std::string(choice.at("text").as_string());
      if (choice.at("logprobs").is_null()) return;
      for (const json::value& v : choice.at("logprobs").at("tokens").as_array())
        tokens[i].push_back(v);
      for (const json::value& v : choice.at("logprobs").at("text_offset").as_array())
        offsets[i].push_back(v);
      for (const json::value& v : choice.at("logprobs").at("token_logprobs").as_array())
        scores[i].push_back(v);
    };
    if (streaming) {
      EXPECT_TRUE(exchange->advance(out));
      for (const json::value& frame : frames_of(out))
        for (const json::value& choice : frame.at("choices").as_array())
          add(choice);
    } else {
      const json::value body = body_of(*exchange);
      for (const json::value& choice : body.at("choices").as_array())
        add(choice);
      EXPECT_TRUE(body.at("choices").at(0).at("logprobs").at("top_logprobs").at(0).is_null());
      EXPECT_EQ(body.at("usage").at("completion_tokens"), 2);
    }
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(text[i], i == 0 ? "Hello youw" : "Hello youz");
      EXPECT_THAT(strings(tokens[i]), ElementsAre("Hello", " ", "y", "o", "u", i == 0 ? "w" : "z"));
      EXPECT_THAT(ints(offsets[i]), ElementsAre(0, 5, 6, 7, 8, 9));
      EXPECT_TRUE(scores[i][0].is_null());
      EXPECT_EQ(scores[i][1].to_number<float>(), -0.125f);
      EXPECT_EQ(scores[i][5].to_number<float>(), -0.5f);
    }
  }
}

TEST(OpenAiCompletions, choices_of_several_prompts_echo_and_score_their_own) {
  FakeService fake;
  const auto exchange = fake.post_exchange(kPath, R"({"prompt":["ab","c"],"echo":true,"logprobs":0,"n":2})");
  ASSERT_EQ(fake.submitted.size(), 2u);
  score_prompt(*fake.submitted[0], -0.125f);
  score_prompt(*fake.submitted[1], -0.25f);
  int k = 0;
  for (const auto& submitted : fake.submitted)
    for (const auto& stream : submitted->streams)
      fake.say(*stream, std::string(1, char('p' + k++)));
  const json::value body = body_of(*exchange);
  const char* const texts[] = {"abp", "abq", "cr", "cs"};
  for (size_t i = 0; i < 4; ++i) {
    const json::value& choice = body.at("choices").at(i);
    EXPECT_EQ(choice.at("text").as_string(), texts[i]);
    EXPECT_EQ(choice.at("logprobs").at("tokens").as_array().size(), std::string_view(texts[i]).size());
  }
  EXPECT_EQ(body.at("choices").at(1).at("logprobs").at("token_logprobs").at(1).to_number<float>(), -0.125f);
}

TEST(OpenAiCompletions, echo_without_an_answer_only_scores) {
  FakeService fake;
  const auto exchange =
      fake.post_exchange(kPath, R"({"prompt":"Hello!","echo":true,"logprobs":0,"max_tokens":0})");
  Submitted& submitted = *fake.submitted.at(0);
  EXPECT_EQ(submitted.request.max_tokens, 0);
  EXPECT_EQ(submitted.request.prompt_logprobs, 0);
  score_prompt(submitted, -1.5f);
  submitted.streams[0]->push(end_event(FinishReason::kLength));
  const json::value body = body_of(*exchange);
  EXPECT_EQ(body.at("choices").at(0).at("text").as_string(), "Hello!");
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason").as_string(), "length");
  EXPECT_THAT(strings(body.at("choices").at(0).at("logprobs").at("tokens")), ElementsAre("Hello", "!"));
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 0);
}

TEST(OpenAiCompletions, what_the_tokenizer_puts_in_front_is_no_text) {
  FakeService fake;
  fake.use_bos();
  const auto exchange =
      fake.post_exchange(kPath, R"({"prompt":"ab","echo":true,"logprobs":0,"max_tokens":0})");
  Submitted& submitted = *fake.submitted.at(0);
  ASSERT_EQ(submitted.request.prompt.size(), 3u);
  score_prompt(submitted, -1.0f);
  submitted.streams[0]->push(end_event(FinishReason::kLength));
  const json::value body = body_of(*exchange);
  const json::value& logprobs = body.at("choices").at(0).at("logprobs");
  EXPECT_EQ(body.at("choices").at(0).at("text").as_string(), "ab");
  EXPECT_THAT(strings(logprobs.at("tokens")), ElementsAre("<s>", "a", "b"));
  EXPECT_THAT(ints(logprobs.at("text_offset")), ElementsAre(0, 0, 1));
}

TEST(OpenAiCompletions, best_of_picks_by_mean_logprob) {
  FakeService fake;
  const auto exchange = fake.post_exchange(kPath, R"({"prompt":"a","n":2,"best_of":3})");
  Submitted& submitted = *fake.submitted.at(0);
  ASSERT_EQ(submitted.streams.size(), 3u);
  EXPECT_EQ(submitted.request.sampling.logprobs, 0) << "needed to compare";
  const float scores[3] = {-3.0f, -1.0f, -2.0f};
  for (int i = 0; i < 3; ++i) {
    submitted.streams[size_t(i)]->push(token_event(fake.id(std::string(1, char('x' + i))), scores[i]));
    // A longer answer with an equal mean is not worse.
    if (i == 1) submitted.streams[1]->push(token_event(fake.id("!"), scores[i]));
    submitted.streams[size_t(i)]->push(end_event(FinishReason::kStop));
  }
  const json::value body = body_of(*exchange);
  ASSERT_EQ(body.at("choices").as_array().size(), 2u);
  EXPECT_EQ(body.at("choices").at(0).at("text").as_string(), "y!");
  EXPECT_EQ(body.at("choices").at(1).at("text").as_string(), "z");
  EXPECT_EQ(body.at("choices").at(1).at("index"), 1);
  EXPECT_TRUE(body.at("choices").at(0).at("logprobs").is_null()) << "not asked for";
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 4) << "all that was generated";
  EXPECT_EQ(body.at("invar").at("output_digest").as_string(),
            output_digest(IdLists{fake.ids("y!"), fake.ids("z")}));
}

}  // namespace
}  // namespace invar::api
