// Named as a test so that it is built into the test program alone.

#include "api/testing/fake_service.h"

#include "api/prefix_log.h"
#include "api/testing/tiny_model.h"

namespace invar::api {
FakeService::FakeService() {
  static const std::shared_ptr<const text::TextModel> model = make_tiny_model(false);
  EXPECT_NE(model->chat_template, nullptr) << model->template_error.message();
  service.model_names = {"tiny", "tiny-alias"};
  service.created = 1700000000;
  service.text = model;
  service.context = 400;
  service.vocab = model->tokenizer->vocab_size();
  service.model_digest = "sha256:abc";
  service.numerics = "cpu-1";
  service.kv = "f16";
  service.fingerprint = "fp_1";
  service.max_choices = 4;
  service.max_prompts = 3;
  service.prefix_log = std::make_shared<PrefixLog>();
  service.submit = [this](GenerateRequest request,
                          int32_t choices) -> Result<std::vector<std::shared_ptr<Stream>>> {
    if (!submit_error.ok()) return submit_error;
    auto entry = std::make_unique<Submitted>();
    entry->request = std::move(request);
    for (int32_t i = 0; i < choices; ++i)
      entry->streams.push_back(std::make_shared<Stream>());
    submitted.push_back(std::move(entry));
    return submitted.back()->streams;
  };
}

void FakeService::use_bos() {
  service.text = make_tiny_model(true);
}

std::vector<int32_t> FakeService::ids(std::string_view text) const {
  auto ids = service.text->tokenizer->encode(text, text::Special::kParse);
  EXPECT_TRUE(ids.ok());
  return *ids;
}

int32_t FakeService::id(std::string_view token) const {
  const std::vector<int32_t> all = ids(token);
  EXPECT_EQ(all.size(), 1u) << token;
  return all.at(0);
}

std::string FakeService::text(const std::vector<int32_t>& ids) const {
  std::string text;
  for (const int32_t id : ids)
    text += service.text->tokenizer->token_bytes(id);
  return text;
}

Outcome FakeService::post(const std::string& path, const std::string& body) {
  const Match match = find_route("POST", path);
  EXPECT_NE(match.route, nullptr) << path;
  const Request request{.method = "POST", .path = path, .query = "", .body = body};
  return match.route->handle({service, request, match.parameter, [] {}});
}

boost::json::value FakeService::post_json(const std::string& path, const std::string& body, int* status) {
  Outcome outcome = post(path, body);
  Response* response = std::get_if<Response>(&outcome);
  *status = response == nullptr ? 0 : response->status;
  EXPECT_NE(response, nullptr) << body;
  return response == nullptr ? boost::json::value() : parsed(response->body);
}

std::unique_ptr<Exchange> FakeService::post_exchange(const std::string& path, const std::string& body) {
  Outcome outcome = post(path, body);
  if (const Response* response = std::get_if<Response>(&outcome)) {
    ADD_FAILURE() << body << "\n" << response->status << " " << response->body;
    return nullptr;
  }
  return std::move(std::get<std::unique_ptr<Exchange>>(outcome));
}

void FakeService::say(Stream& stream, std::string_view text, FinishReason finish) {
  for (const int32_t id : ids(text))
    stream.push(token_event(id, -0.5f));
  stream.push(end_event(finish));
}

TokenEvent token_event(int32_t token, float logprob, std::vector<TokenLogprob> alternatives) {
  TokenEvent event;
  event.token = token;
  event.logprob = logprob;
  event.alternatives = std::move(alternatives);
  event.published_ns = 1;
  return event;
}

TokenEvent end_event(FinishReason finish) {
  TokenEvent event;
  event.finish = finish;
  return event;
}

std::vector<boost::json::value> frames_of(const std::string& stream) {
  std::vector<boost::json::value> frames;
  std::string_view rest = stream;
  bool done = false;
  while (!rest.empty()) {
    const size_t end = rest.find("\n\n");
    EXPECT_NE(end, std::string_view::npos) << "a frame without end: " << rest;
    if (end == std::string_view::npos) break;
    std::string_view frame = rest.substr(0, end);
    rest.remove_prefix(end + 2);
    EXPECT_TRUE(frame.starts_with("data: ")) << frame;
    frame.remove_prefix(6);
    EXPECT_EQ(frame.find('\n'), std::string_view::npos) << frame;
    EXPECT_FALSE(done) << "after [DONE]: " << frame;
    if (frame == "[DONE]") {
      done = true;
    } else {
      frames.push_back(parsed(std::string(frame)));
    }
  }
  EXPECT_TRUE(done) << "no [DONE]";
  return frames;
}

boost::json::value parsed(const std::string& text) {
  boost::json::error_code error;
  boost::json::value value = boost::json::parse(text, error);
  EXPECT_FALSE(error) << text;
  return value;
}

}  // namespace invar::api
