// libFuzzer target: any body sent to any generating or tokenizing endpoint ends in a 4xx or in an answer, and
// every answer is JSON. The first byte chooses the endpoint. layers: api

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <variant>

#include "api/protocol.h"
#include "api/service.h"
#include "api/testing/tiny_model.h"
#include "base/check.h"

namespace {

using namespace invar;
using namespace invar::api;

// What an engine would send: scores of the prompt if wanted, two tokens, the end.
std::shared_ptr<Stream> answered(const GenerateRequest& request, bool first) {
  auto stream = std::make_shared<Stream>();
  if (first && request.prompt_logprobs >= 0) {
    for (const int32_t id : request.prompt) {
      TokenEvent event;
      event.token = id;
      event.of_prompt = true;
      stream->push(std::move(event));
    }
  }
  for (const int32_t id : {200, 72}) {
    TokenEvent event;
    event.token = id;
    event.logprob = -1;
    if (request.sampling.logprobs > 0) event.alternatives = {{id, -1.0f}, {256, -2.0f}};
    if (request.max_tokens >= 2) stream->push(std::move(event));
  }
  TokenEvent end;
  end.finish = FinishReason::kLength;
  stream->push(std::move(end));
  return stream;
}

const Service& service() {
  static const Service* made = [] {
    auto* s = new Service;
    s->model_names = {"tiny"};
    s->text = make_tiny_model(true);
    s->context = 4096;
    s->vocab = 263;
    s->fingerprint = "fp";
    s->submit = [](GenerateRequest request, int32_t choices) -> Result<std::vector<std::shared_ptr<Stream>>> {
      CHECK(!request.prompt.empty());
      CHECK(request.sampling.validate(263).ok());
      std::vector<std::shared_ptr<Stream>> streams;
      for (int32_t i = 0; i < choices; ++i)
        streams.push_back(answered(request, i == 0));
      return streams;
    };
    return s;
  }();
  return *made;
}

void check_json(const std::string& text) {
  boost::json::error_code error;
  (void)boost::json::parse(text, error);
  CHECK(!error);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  constexpr const char* kPaths[] = {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize",
                                    "/apply-template"};
  const Match match = find_route("POST", kPaths[data[0] % 5]);
  Request request;
  request.body.assign(reinterpret_cast<const char*>(data) + 1, size - 1);
  Outcome outcome = match.route->handle({service(), request, "", [] {}});
  if (const auto* response = std::get_if<Response>(&outcome)) {
    CHECK(response->status < 500);
    check_json(response->body);
    return 0;
  }
  Exchange& exchange = *std::get<std::unique_ptr<Exchange>>(outcome);
  std::string out;
  CHECK(exchange.advance(out));
  if (!exchange.streaming()) {
    check_json(exchange.response().body);
    return 0;
  }
  CHECK(out.ends_with("data: [DONE]\n\n"));
  for (size_t at = 0; at < out.size(); at = out.find("\n\n", at) + 2) {
    const std::string frame = out.substr(at + 6, out.find("\n\n", at) - at - 6);
    if (frame != "[DONE]") check_json(frame);
  }
  return 0;
}
