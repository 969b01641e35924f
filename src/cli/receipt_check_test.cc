#include "cli/receipt_check.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace invar {
namespace {

const std::string kReceipt =
    R"({"model_digest":"aa","numerics":"3","kv":"f16","seed":18446744073709551615,"output_digest":"bb"})";

Receipt receipt() {
  const auto read = read_receipt(kReceipt);
  EXPECT_TRUE(read.ok());
  return *read;
}

TEST(ReceiptCheck, finds_the_receipt_alone_in_a_body_and_in_a_stream) {
  const std::string body = R"({"choices":[],"invar":)" + kReceipt + "}";
  const std::string stream = "data: {\"choices\":[]}\n\n: ping\n\ndata: " + body + "\n\ndata: [DONE]\n\n";
  for (const std::string& text :
       {kReceipt, body, stream, stream.substr(0, stream.find("\n\ndata: [DONE]"))}) {
    const auto read = read_receipt(text);
    ASSERT_TRUE(read.ok()) << text << read.status().message();
    EXPECT_EQ(read->model_digest, "aa");
    EXPECT_EQ(read->seed, "18446744073709551615");
    EXPECT_EQ(read->output_digest, "bb");
  }
}

TEST(ReceiptCheck, says_what_is_missing) {
  const auto error = [](const std::string& text) {
    const auto read = read_receipt(text);
    EXPECT_FALSE(read.ok()) << text;
    return read.ok() ? "" : read.status().message();
  };
  EXPECT_NE(error("{}").find("no receipt"), std::string::npos);
  EXPECT_NE(error("[1]").find("no receipt"), std::string::npos);
  EXPECT_NE(error("hello").find("neither JSON nor"), std::string::npos);
  EXPECT_NE(error("").find("neither JSON nor"), std::string::npos);
  EXPECT_NE(error("data: {\"a\":1}\n\n").find("no frame"), std::string::npos);
  EXPECT_NE(
      error(R"({"invar":{"model_digest":"a","numerics":"1","kv":"f16","output_digest":"b"}})").find("seed"),
      std::string::npos);
  EXPECT_NE(error(R"({"invar":{"model_digest":1}})").find("model_digest"), std::string::npos);
  EXPECT_NE(
      error(R"({"model_digest":"a","numerics":"1","kv":"f16","output_digest":"b","seed":1.5})").find("seed"),
      std::string::npos);
}

TEST(ReceiptCheck, the_first_difference_is_the_cause) {
  Receipt other = receipt();
  EXPECT_FALSE(first_difference(receipt(), other));
  other.output_digest = "cc";
  EXPECT_EQ(first_difference(receipt(), other)->field, "output_digest");
  other.seed = "1";
  EXPECT_EQ(first_difference(receipt(), other)->field, "seed");
  other.kv = "f32";
  EXPECT_EQ(first_difference(receipt(), other)->field, "kv");
  other.numerics = "4";
  EXPECT_EQ(first_difference(receipt(), other)->field, "numerics");
  other.model_digest = "dd";
  EXPECT_EQ(first_difference(receipt(), other)->field, "model_digest");
  EXPECT_EQ(first_difference(receipt(), other)->ours, "aa");
  EXPECT_EQ(first_difference(receipt(), other)->theirs, "dd");
}

TEST(ReceiptCheck, the_request_gets_the_seed_and_loses_the_stream) {
  const auto chat = repeated_request(R"({"messages":[],"stream":true,"stream_options":{},"seed":null,"n":2})",
                                     "", receipt());
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(chat->target, "/v1/chat/completions");
  EXPECT_FALSE(chat->other_seed);
  EXPECT_EQ(boost::json::parse(chat->body),
            boost::json::parse(R"({"messages":[],"n":2,"seed":18446744073709551615})"));

  const auto completions = repeated_request(R"({"prompt":"a","seed":5})", "", receipt());
  ASSERT_TRUE(completions.ok());
  EXPECT_EQ(completions->target, "/v1/completions");
  EXPECT_EQ(completions->other_seed, "5");
  EXPECT_EQ(repeated_request(R"({"prompt":"a","messages":[]})", "chat", receipt())->target,
            "/v1/chat/completions");
  EXPECT_FALSE(repeated_request(R"({"prompt":"a","messages":[]})", "", receipt()).ok());
  EXPECT_FALSE(repeated_request("{}", "", receipt()).ok());
  EXPECT_FALSE(repeated_request("[]", "chat", receipt()).ok());
  EXPECT_FALSE(repeated_request("x", "chat", receipt()).ok());
}

TEST(ReceiptCheck, a_whole_number_with_a_fraction_is_the_same_seed) {
  Receipt r = receipt();
  r.seed = "5";
  EXPECT_FALSE(repeated_request(R"({"prompt":"a","seed":5.0})", "", r)->other_seed);
  r.seed = "-5";
  EXPECT_FALSE(repeated_request(R"({"prompt":"a","seed":-5})", "", r)->other_seed);
}

TEST(ReceiptCheck, a_logged_body_gets_a_seed_only_where_it_has_none) {
  EXPECT_EQ(boost::json::parse(with_seed(R"({"prompt":"a"})", "7")),
            boost::json::parse(R"({"prompt":"a","seed":7})"));
  EXPECT_EQ(boost::json::parse(with_seed(R"({"seed":null})", "7")), boost::json::parse(R"({"seed":7})"));
  EXPECT_EQ(with_seed(R"({"seed": 1})", "7"), R"({"seed": 1})");
  EXPECT_EQ(with_seed("no json", "7"), "no json");
  EXPECT_EQ(with_seed(R"({"a": 1})", "no seed"), R"({"a": 1})");
  EXPECT_TRUE(is_determined(R"({"seed":1})"));
  EXPECT_TRUE(is_determined(R"({"temperature":0.0})"));
  EXPECT_FALSE(is_determined(R"({"temperature":0.5,"seed":null})"));
  EXPECT_FALSE(is_determined("x"));
}

}  // namespace
}  // namespace invar
