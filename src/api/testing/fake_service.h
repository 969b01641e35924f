#pragma once
// For tests: a served model without an engine. Its tokenizer knows the 256 bytes, a few words and the control
// tokens of ChatML; requests are kept, and the test writes the answers into their streams.

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <memory>
#include <string>
#include <vector>

#include "api/protocol.h"
#include "api/service.h"

namespace invar::api {

using IdLists = std::vector<std::vector<int32_t>>;

// A request that reached the "engine".
struct Submitted {
  GenerateRequest request;
  std::vector<std::shared_ptr<Stream>> streams;  // one per choice
};

class FakeService {
 public:
  FakeService();

  // From now on the tokenizer puts <s> in front of prompts.
  void use_bos();

  Service service;
  std::vector<std::unique_ptr<Submitted>> submitted;
  Status submit_error;  // what submit() answers, if not OK

  std::vector<int32_t> ids(std::string_view text) const;  // control tokens parsed
  int32_t id(std::string_view token) const;               // of a single token
  std::string text(const std::vector<int32_t>& ids) const;

  // Handles a POST; fails the test if the path is unknown.
  Outcome post(const std::string& path, const std::string& body);
  // The answer of a request that must not generate, as JSON; *status: HTTP.
  boost::json::value post_json(const std::string& path, const std::string& body, int* status);
  // The exchange of a request that must generate.
  std::unique_ptr<Exchange> post_exchange(const std::string& path, const std::string& body);

  // Puts an answer into a stream: each token of the text as an event, then the end.
  void say(Stream& stream, std::string_view text, FinishReason finish = FinishReason::kStop);
};

TokenEvent token_event(int32_t token, float logprob = 0, std::vector<TokenLogprob> alternatives = {});
TokenEvent end_event(FinishReason finish);

// The data of all frames of a stream; "[DONE]" must be the last one and is left out.
std::vector<boost::json::value> frames_of(const std::string& stream);
boost::json::value parsed(const std::string& text);

}  // namespace invar::api
