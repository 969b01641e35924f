#include "cli/local_server.h"

#include <gtest/gtest.h>

namespace invar {
namespace {

class LocalServerTest : public ::testing::Test {
 protected:
  LocalServerTest() { service_.model_names = {"a model"}; }

  ApiReply send(const std::string& method, const std::string& target, const std::string& body = "") {
    ApiRequest request;
    request.method = method;
    request.target = target;
    request.body = body;
    const auto reply = server_.send(request);
    EXPECT_TRUE(reply.ok()) << reply.status().message();
    return reply.ok() ? *reply : ApiReply{};
  }

  api::Service service_;
  LocalServer server_{service_};
};

TEST_F(LocalServerTest, answers_as_the_routes_do) {
  const ApiReply models = send("GET", "/v1/models?x=1");
  EXPECT_EQ(models.status, 200);
  EXPECT_EQ(models.content_type, "application/json");
  EXPECT_NE(models.body.find("a model"), std::string::npos);
  EXPECT_EQ(send("GET", "/v1/models/a%20model").status, 200);
  EXPECT_EQ(send("HEAD", "/v1/models").status, 200);
  EXPECT_EQ(send("HEAD", "/v1/models").body, "");
  EXPECT_EQ(send("POST", "/v1/chat/completions", "not json").status, 400);
}

TEST_F(LocalServerTest, words_what_it_does_not_have_as_a_server_does) {
  const ApiReply unknown = send("GET", "/nothing");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_NE(unknown.body.find("unknown_path"), std::string::npos);
  const ApiReply method = send("GET", "/v1/completions");
  EXPECT_EQ(method.status, 405);
  EXPECT_NE(method.body.find("this path has POST"), std::string::npos);
}

TEST_F(LocalServerTest, is_cancelled_until_it_is_resumed) {
  server_.cancel();
  EXPECT_EQ(server_.send({.method = "GET", .target = "/v1/models", .fields = {}, .body = ""}).status().code(),
            Code::kCancelled);
  server_.resume();
  EXPECT_EQ(send("GET", "/v1/models").status, 200);
}

}  // namespace
}  // namespace invar
