#include "cli/chat_session.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace invar {
namespace {

namespace json = boost::json;

TEST(ChatSession, requests_carry_the_conversation_so_far) {
  ChatSession session({{"max_tokens", 9}});
  session.set_system("be brief");
  session.add_turn("hi", "hello");
  const json::value body = json::parse(session.request("gr\xC3\xBC\xC3\x9F dich"));
  EXPECT_EQ(body, json::parse("{\"max_tokens\":9,\"stream\":true,\"stream_options\":{\"include_usage\":true},"
                              "\"messages\":[{\"role\":\"system\",\"content\":\"be brief\"},"
                              "{\"role\":\"user\",\"content\":\"hi\"},"
                              "{\"role\":\"assistant\",\"content\":\"hello\"},"
                              "{\"role\":\"user\",\"content\":\"gr\xC3\xBC\xC3\x9F dich\"}]}"));
  session.clear();
  session.set_system("");
  EXPECT_EQ(json::parse(session.request("x")).at("messages"),
            json::parse(R"([{"role":"user","content":"x"}])"));
}

TEST(ChatSession, members_say_how_tokens_are_chosen) {
  GenerateRequest settings;
  settings.max_tokens = 5;
  settings.sampling.temperature = 0.5f;
  settings.sampling.seed = 18446744073709551615u;
  settings.sampling.logit_bias = {{3, -1.5f}};
  settings.stop_ids = {1, 2};
  settings.ignore_eos = true;
  const json::object with = generation_members(settings, true, {"temperature", "top_k"}, {"top_k", "dry"});
  EXPECT_EQ(with.at("temperature"), json::value(0.5));
  EXPECT_EQ(with.at("seed"), json::value(18446744073709551615u));
  EXPECT_EQ(with.at("logit_bias"), json::parse(R"({"3":-1.5E0})"));
  EXPECT_EQ(with.at("stop_token_ids"), json::parse("[1,2]"));
  EXPECT_EQ(with.at("ignore_eos"), json::value(true));
  const json::object without = generation_members({}, false, {});
  EXPECT_EQ(with.at("samplers"), json::parse(R"(["top_k","dry"])"));
  EXPECT_EQ(with.if_contains("top_p"), nullptr) << "the server's own default holds";
  for (const char* name : {"samplers", "temperature", "seed", "logit_bias", "stop_token_ids", "ignore_eos"})
    EXPECT_EQ(without.if_contains(name), nullptr) << name;
}

TEST(ChatAnswer, collects_the_text_whatever_the_pieces_are) {
  const std::string stream =
      "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n"
      ": ping\n\n"
      "data: {\"choices\":[{\"delta\":{\"content\":\"\xC3\xA4\\u001b\"},\"finish_reason\":null}]}\n\n"
      "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n"
      "data: {\"choices\":[],\"usage\":{\"completion_tokens\":12}}\n\ndata: [DONE]\n\n";
  for (const size_t piece : {size_t{1}, size_t{7}, stream.size()}) {
    ChatAnswer answer;
    std::string fresh;
    for (size_t at = 0; at < stream.size(); at += piece)
      EXPECT_TRUE(answer.feed(std::string_view(stream).substr(at, piece), fresh).ok());
    EXPECT_EQ(answer.text(), "\xC3\xA4\x1b");
    EXPECT_EQ(fresh, answer.text());
    EXPECT_TRUE(answer.ended() && answer.cut());
    EXPECT_EQ(answer.tokens(), 12);
    EXPECT_EQ(answer.error(), "");
  }
}

TEST(ChatAnswer, hostile_frames_are_no_text) {
  ChatAnswer answer;
  std::string fresh;
  for (const char* data : {"[]", "{\"choices\":1}", "{\"choices\":[1]}", "{\"choices\":[{\"delta\":[]}]}",
                           "null", "{\"choices\":[{\"delta\":{\"content\":5}}],\"usage\":7}"})
    EXPECT_TRUE(answer.feed(std::string("data: ") + data + "\n\n", fresh).ok());
  EXPECT_EQ(fresh, "");
  EXPECT_FALSE(answer.ended());
  EXPECT_TRUE(answer.feed("data: {\"error\":{\"message\":\"boom\"}}\n\n", fresh).ok());
  EXPECT_EQ(answer.error(), "boom");
}

TEST(ChatAnswer, errors_have_words_in_every_shape) {
  EXPECT_EQ(api_error(400, R"({"error":{"message":"m","code":"c"}})").message, "m");
  EXPECT_EQ(api_error(400, R"({"error":{"message":"m","code":"c"}})").code, "c");
  EXPECT_EQ(api_error(502, "<html>").message, "the server answered with status 502: <html>");
  EXPECT_EQ(api_error(302, "").message, "the server answered with status 302 and nothing else");
  EXPECT_EQ(api_error(500, R"({"error":"x"})").message,
            R"(the server answered with status 500: {"error":"x"})");
}

TEST(ChatAnswer, terminals_get_lines_but_no_escapes) {
  EXPECT_EQ(answer_for_terminal("a\n\tb\x1b[2J \xC2\x9B\xC3\xA4\n\n"),
            "a\n\tb\\x1b[2J \\xc2\\x9b\xC3\xA4\n\n");
  EXPECT_EQ(answer_for_terminal(""), "");
}

}  // namespace
}  // namespace invar
