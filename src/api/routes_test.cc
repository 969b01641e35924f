// Which path leads where, and the small endpoints.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/openai_error.h"
#include "api/prefix_log.h"
#include "api/testing/fake_service.h"

namespace invar::api {
namespace {

namespace json = boost::json;

TEST(Routes, a_path_has_methods) {
  const struct {
    const char* method;
    const char* path;
    bool found;
    const char* allowed;
    const char* parameter;
  } cases[] = {
      {"POST", "/v1/chat/completions", true, "POST, OPTIONS", ""},
      {"GET", "/v1/chat/completions", false, "POST, OPTIONS", ""},
      {"GET", "/v1/models", true, "GET, HEAD, OPTIONS", ""},
      {"DELETE", "/v1/models", false, "GET, HEAD, OPTIONS", ""},
      {"GET", "/v1/models/a", true, "GET, HEAD, OPTIONS", "a"},
      {"GET", "/v1/models/org/name", true, "GET, HEAD, OPTIONS", "org/name"},
      {"GET", "/v1/models/", false, "", ""},
      {"POST", "/v1/chat/completions/", false, "", ""},
      {"POST", "/v1/chat/completions/../models", false, "", ""},
      {"POST", "/V1/chat/completions", false, "", ""},
      {"GET", "/", false, "", ""},
      {"GET", "", false, "", ""},
  };
  for (const auto& c : cases) {
    const Match match = find_route(c.method, c.path);
    EXPECT_EQ(match.route != nullptr, c.found) << c.method << " " << c.path;
    EXPECT_EQ(match.allowed, c.allowed) << c.path;
    EXPECT_EQ(match.parameter, c.parameter) << c.path;
    ASSERT_NE(match.protocol, nullptr);
  }
}

TEST(Routes, errors_have_four_members) {
  const json::value error = parsed(openai_error({404, "no \"x\"", "", ""}).body).at("error");
  EXPECT_EQ(error.at("message").as_string(), "no \"x\"");
  EXPECT_EQ(error.at("type").as_string(), "invalid_request_error");
  EXPECT_TRUE(error.at("param").is_null());
  EXPECT_TRUE(error.at("code").is_null());
  const struct {
    Code code;
    int status;
  } cases[] = {{Code::kInvalidArgument, 400},   {Code::kNotFound, 400},    {Code::kUnsupported, 400},
               {Code::kResourceExhausted, 429}, {Code::kUnavailable, 503}, {Code::kCancelled, 499},
               {Code::kInternal, 500},          {Code::kIo, 500},          {Code::kCorrupt, 500}};
  for (const auto& c : cases)
    EXPECT_EQ(error_of({c.code, "m"}).status, c.status);
}

json::value get(FakeService& fake, const std::string& path, int* status, uint64_t tenant = 0) {
  const Match match = find_route("GET", path);
  const Request request{.method = "GET", .path = path, .query = "", .body = "", .id = "", .tenant = tenant};
  const Outcome outcome = match.route->handle({fake.service, request, match.parameter, [] {}});
  const Response& response = std::get<Response>(outcome);
  *status = response.status;
  return parsed(response.body);
}

TEST(Models, lists_every_name_and_finds_one) {
  FakeService fake;
  int status = 0;
  const json::value list = get(fake, "/v1/models", &status);
  EXPECT_EQ(status, 200);
  EXPECT_EQ(list.at("object").as_string(), "list");
  ASSERT_EQ(list.at("data").as_array().size(), 2u);
  const json::value one = get(fake, "/v1/models/tiny-alias", &status);
  EXPECT_EQ(status, 200);
  EXPECT_EQ(one, list.at("data").at(1));
  EXPECT_EQ(one.at("id").as_string(), "tiny-alias");
  EXPECT_EQ(one.at("object").as_string(), "model");
  EXPECT_EQ(one.at("created"), 1700000000);
  EXPECT_EQ(one.at("max_model_len"), 400);
  const json::value none = get(fake, "/v1/models/other", &status);
  EXPECT_EQ(status, 404);
  EXPECT_EQ(none.at("error").at("code").as_string(), "model_not_found");
}

TEST(DebugPrefix, tells_each_tenant_of_its_own_prompts_the_latest_first) {
  FakeService fake;
  int status = 0;
  EXPECT_EQ(get(fake, "/debug/prefix", &status).at("data"), json::array());
  PromptReuse differs{
      .cached_tokens = 70, .lookup = {PrefixEnd::kDiffers, fake.id("Hello")}, .end_position = 70};
  fake.service.prefix_log->add({"req-1", 1, 100, differs, fake.id("x")});
  fake.service.prefix_log->add({"req-2", 2, 50, {}, -1});
  fake.service.prefix_log->add({"req-3", 1, 100, {99, {PrefixEnd::kComplete}, 99}, 7});
  const json::value list = get(fake, "/debug/prefix", &status, 1);
  EXPECT_EQ(status, 200);
  ASSERT_EQ(list.at("data").as_array().size(), 2u);
  EXPECT_EQ(list.at("data").at(0).at("request").as_string(), "req-3");
  const json::value& first = list.at("data").at(1);
  EXPECT_EQ(first.at("prompt_tokens"), 100);
  EXPECT_EQ(first.at("cached_tokens"), 70);
  EXPECT_EQ(first.at("end").as_string(), "differs");
  EXPECT_EQ(first.at("position"), 70);
  EXPECT_EQ(first.at("token").at("text").as_string(), "x");
  EXPECT_EQ(first.at("known_token").at("id"), fake.id("Hello"));
  EXPECT_FALSE(first.at("explanation").as_string().empty());
  for (size_t i = 0; i < 2 * PrefixLog::kEntries; ++i)
    fake.service.prefix_log->add({"req-x", 3, 1, {}, -1});
  EXPECT_EQ(get(fake, "/debug/prefix", &status, 3).at("data").as_array().size(), PrefixLog::kEntries);
  EXPECT_EQ(get(fake, "/debug/prefix", &status, 1).at("data"), json::array());
}

TEST(DebugPrefix, gets_what_a_request_found) {
  FakeService fake;
  const auto exchange =
      fake.post_exchange("/v1/completions", R"({"prompt":"Hello world","n":2,"priority":-3})");
  Submitted& request = *fake.submitted.at(0);
  EXPECT_EQ(request.request.priority, -3);
  for (const auto& stream : request.streams) {
    TokenEvent end = end_event(FinishReason::kStop);
    end.prompt = {.cached_tokens = 1, .lookup = {PrefixEnd::kEvicted}, .end_position = 1};
    stream->push(std::move(end));
  }
  std::string out;
  EXPECT_TRUE(exchange->advance(out));
  const std::vector<PrefixLog::Entry> entries = fake.service.prefix_log->of_tenant(0);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].prompt_tokens, int32_t(request.request.prompt.size()));
  EXPECT_EQ(entries[0].token, request.request.prompt[1]);
  EXPECT_EQ(entries[0].reuse.lookup.end, PrefixEnd::kEvicted);
}

TEST(Tokenize, text_to_ids_and_back) {
  FakeService fake;
  int status = 0;
  json::value reply = fake.post_json("/tokenize", R"({"content":"Hello\u00e9"})", &status);
  EXPECT_EQ(status, 200);
  ASSERT_EQ(reply.at("tokens").as_array().size(), 3u);
  EXPECT_EQ(reply.at("count"), 3);
  EXPECT_EQ(reply.at("max_model_len"), 400);
  reply = fake.post_json("/detokenize", "{\"tokens\":" + json::serialize(reply.at("tokens")) + "}", &status);
  EXPECT_EQ(status, 200);
  EXPECT_EQ(reply.at("content").as_string(), "Hello\xC3\xA9");
  EXPECT_EQ(reply.at("prompt").as_string(), "Hello\xC3\xA9");
}

TEST(Tokenize, pieces_are_strings_or_bytes) {
  FakeService fake;
  int status = 0;
  json::value reply = fake.post_json("/tokenize", R"({"content":"Hello\u00e9","with_pieces":true})", &status);
  EXPECT_EQ(reply.at("tokens").at(0).at("piece").as_string(), "Hello");
  EXPECT_EQ(reply.at("tokens").at(0).at("id"), fake.id("Hello"));
  EXPECT_EQ(reply.at("tokens").at(1).at("piece"), json::parse("[195]"));
  reply = fake.post_json("/tokenize", R"({"content":"Hello","return_token_strs":true})", &status);
  EXPECT_EQ(reply.at("token_strs"), json::parse(R"(["Hello"])"));
}

TEST(Tokenize, special_tokens_are_a_choice) {
  FakeService fake;
  fake.use_bos();
  int status = 0;
  const auto count = [&](const char* body) {
    return fake.post_json("/tokenize", body, &status).at("count").as_int64();
  };
  EXPECT_EQ(count(R"({"content":"a"})"), 1);
  EXPECT_EQ(count(R"({"content":"a","add_special":true})"), 2);
  EXPECT_EQ(count(R"({"prompt":"a"})"), 2);
  EXPECT_EQ(count(R"({"prompt":"a","add_special_tokens":false})"), 1);
  EXPECT_EQ(count(R"({"content":"<s>"})"), 1);
  EXPECT_EQ(count(R"({"content":"<s>","parse_special":false})"), 3);
  EXPECT_EQ(count(R"({"content":""})"), 0);
}

TEST(Tokenize, conversations_are_rendered) {
  FakeService fake;
  int status = 0;
  const char* body = R"({"messages":[{"role":"user","content":"Hi"}]})";
  const json::value rendered = fake.post_json("/apply-template", body, &status);
  EXPECT_EQ(status, 200);
  EXPECT_EQ(rendered.at("prompt").as_string(), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  const json::value tokens = fake.post_json("/tokenize", body, &status);
  EXPECT_EQ(size_t(tokens.at("count").as_int64()),
            fake.ids(std::string(rendered.at("prompt").as_string())).size());
}

TEST(Tokenize, wrong_requests_are_400) {
  FakeService fake;
  const struct {
    const char* path;
    const char* body;
    const char* param;
  } cases[] = {
      {"/tokenize", "{}", "content"},
      {"/tokenize", R"({"content":5})", "content"},
      {"/tokenize", R"({"content":"x","add_special":1})", "add_special"},
      {"/tokenize", R"({"messages":[]})", "messages"},
      {"/detokenize", "{}", "tokens"},
      {"/detokenize", R"({"tokens":["x"]})", "tokens[0]"},
      {"/detokenize", R"({"tokens":[1,-1]})", "tokens[1]"},
      {"/detokenize", R"({"tokens":[1000000]})", "tokens[0]"},
      {"/apply-template", "{}", "messages"},
      {"/apply-template", R"({"messages":[{"role":"user","content":"x"}],"chat_template":"x"})",
       "chat_template"},
      {"/tokenize", R"({"messages":[{"role":"user","content":"x"}],"chat_template":"x"})", "chat_template"},
  };
  for (const auto& c : cases) {
    int status = 0;
    const json::value reply = fake.post_json(c.path, c.body, &status);
    EXPECT_EQ(status, 400) << c.body;
    EXPECT_EQ(reply.at("error").at("param").as_string(), c.param) << c.body;
  }
}

TEST(Tokenize, texts_and_ids_beyond_the_bounds_are_400_with_the_number) {
  FakeService fake;
  fake.service.max_text_bytes = 100;
  fake.service.max_token_ids = 30;
  const auto hello = [](int times) {
    std::string text;
    for (int i = 0; i < times; ++i)
      text += "Hello";
    return "\"" + text + "\"";
  };
  const auto letters = [](size_t times) { return "\"" + std::string(times, 'x') + "\""; };
  const auto with = [](const std::string& field, const std::string& value) {
    return "{\"" + field + "\":" + value + "}";
  };
  const auto ids = [](int count, int32_t id) {
    std::string list = "[";
    for (int i = 0; i < count; ++i)
      list += (i > 0 ? "," : "") + std::to_string(id);
    return list + "]";
  };
  const auto messages = [&](const std::string& content, const std::string& more = "") {
    return R"({"messages":[{"role":"user","content":)" + content + "}]" + more + "}";
  };
  const std::string tool = R"(,"tools":[{"type":"function","function":{"name":"f","description":)";
  const struct {
    std::string path, body, param, number;  // param "": it is served
  } cases[] = {
      {"/tokenize", with("content", hello(20)), "", ""},
      {"/tokenize", with("content", hello(21)), "content", "the 100 bytes"},
      {"/tokenize", with("prompt", hello(21)), "prompt", "the 100 bytes"},
      {"/tokenize", with("content", letters(30)), "", ""},
      {"/tokenize", with("content", letters(31)), "content", "tokens than the 30 "},
      {"/tokenize", messages("\"Hi\""), "", ""},
      {"/tokenize", messages(hello(21)), "messages", "the 100 bytes"},
      {"/tokenize", messages(letters(31)), "messages", "tokens than the 30 "},
      {"/apply-template", messages("\"Hi\""), "", ""},
      {"/apply-template", messages(letters(31)), "", ""},
      {"/apply-template", messages(hello(21)), "messages", "the 100 bytes"},
      {"/apply-template", messages("\"Hi\"", tool + hello(21) + "}}]"), "messages", "the 100 bytes"},
      {"/detokenize", with("tokens", ids(30, fake.id("x"))), "", ""},
      {"/detokenize", with("tokens", ids(31, fake.id("x"))), "tokens", "tokens than the 30 "},
      {"/detokenize", with("tokens", ids(21, fake.id("Hello"))), "tokens", "the 100 bytes"},
  };
  for (const auto& c : cases) {
    int status = 0;
    const json::value reply = fake.post_json(c.path, c.body, &status);
    EXPECT_EQ(status, c.param.empty() ? 200 : 400) << c.path << " " << c.body << " " << reply;
    if (status != 400 || c.param.empty()) continue;
    EXPECT_EQ(reply.at("error").at("param").as_string(), c.param) << c.body;
    EXPECT_THAT(std::string(reply.at("error").at("message").as_string()), ::testing::HasSubstr(c.number))
        << c.body;
  }
}

}  // namespace
}  // namespace invar::api
