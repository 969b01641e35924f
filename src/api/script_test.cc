#include "api/script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "api/testing/fake_service.h"
#include "base/clock.h"

namespace invar::api {
namespace {

namespace json = boost::json;
using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of_script(const std::string& text) {
  const auto script = Script::parse(text, 300);
  return script.ok() ? "accepted" : script.status().message();
}

std::string rules(const std::string& list) {
  return R"({"rules":[)" + list + "]}";
}

// The answers of one script, as text with '|' between groups.
class Scripted {
 public:
  explicit Scripted(const std::string& text) {
    auto script = Script::parse(text, fake.service.vocab);
    EXPECT_TRUE(script.ok()) << script.status().message();
    if (script.ok()) script_ = std::move(script).value();
  }

  Result<std::shared_ptr<const ScriptedAnswer>> ask(const ScriptQuestion& question) {
    return script_->answer(question, *fake.service.text);
  }
  std::string say(const ScriptQuestion& question) {
    const auto answer = ask(question);
    if (!answer.ok()) return answer.status().message();
    std::string out;
    for (const ScriptedAnswer::Group& group : (*answer)->groups)
      out += (out.empty() ? "" : "|") + fake.text(group.tokens);
    return out;
  }

  FakeService fake;

 private:
  std::unique_ptr<const Script> script_;
};

TEST(Script, errors_name_rule_and_field) {
  const struct {
    std::string text;
    const char* part;
  } cases[] = {
      {"", "not valid JSON"},
      {"[]", "must be a JSON object"},
      {"{}", "rules: is missing"},
      {R"({"rules":5})", "rules: must be an array"},
      {rules("5"), "rules[0]: must be an object"},
      {rules(R"({"text":"a"},{})"), "rules[1]: must have exactly one of text, groups, error"},
      {rules(R"({"text":"a","groups":["b"]})"), "exactly one"},
      {rules(R"({"txt":"a","text":"a"})"), "rules[0].txt: is not a known key"},
      {rules(R"({"text":5})"), "rules[0].text: must be a string"},
      {rules(R"({"text":"a","when":{"turns":1}})"), "rules[0].when.turns: is not a known key"},
      {rules(R"({"text":"a","when":{"turn":0}})"), "rules[0].when.turn: 0 is not within"},
      {rules(R"({"text":"a","when":{"matches":"("}})"), "rules[0].when.matches: is not a regular expression"},
      {rules(R"({"text":"a","when":{"tools":"f"}})"), "rules[0].when.tools: must be true, false"},
      {rules(R"({"text":"a","when":{"tools":[5]}})"), "rules[0].when.tools[0]: must be a string"},
      {rules(R"({"groups":["a",5]})"), "rules[0].groups[1]: must be a string or an object"},
      {rules(R"({"groups":[{"cost_ms":1}]})"), "rules[0].groups[0]: must have either"},
      {rules(R"({"groups":[{"tokens":[-1]}]})"), "rules[0].groups[0].tokens[0]: -1 is not a token id"},
      {rules(R"({"groups":["a",{"tokens":[299,300]}]})"),
       "rules[0].groups[1].tokens[1]: 300 is not a token id; the model has the ids 0 to 299"},
      {rules(R"({"text":"a","first_ms":-1})"), "rules[0].first_ms: -1 is not within"},
      {rules(R"({"text":"a","finish":"done"})"), "rules[0].finish"},
      {rules(R"({"error":{"status":200}})"), "rules[0].error.status: 200 is not within"},
      {rules(R"({"error":{"stat":400}})"), "rules[0].error.stat: is not a known key"},
      {rules(R"({"text":"a","fail":{},"cut":{}})"), "rules[0].cut: contradicts fail"},
      {rules(R"({"text":"a","cut":{"after_groups":-1}})"), "rules[0].cut.after_groups: -1 is not within"},
  };
  for (const auto& c : cases)
    EXPECT_THAT(error_of_script(c.text), HasSubstr(c.part)) << c.text;
}

TEST(Script, the_first_rule_that_matches_answers) {
  Scripted s(rules(R"({"when":{"turn":2},"groups":["two"]},
                      {"when":{"role":"tool","contains":"42"},"groups":["tool"]},
                      {"when":{"equals":"ping"},"groups":["pong"]},
                      {"when":{"matches":"^[0-9]+$"},"groups":["number"]},
                      {"when":{"tools":false,"contains":"no"},"groups":["no tools"]})"));
  EXPECT_EQ(s.say({.turn = 2, .role = "user", .text = "ping", .tools = {}}), "two");
  EXPECT_EQ(s.say({.turn = 1, .role = "tool", .text = "is 42", .tools = {}}), "tool");
  EXPECT_EQ(s.say({.turn = 1, .role = "user", .text = "ping", .tools = {}}), "pong");
  EXPECT_EQ(s.say({.turn = 1, .role = "user", .text = "123", .tools = {}}), "number");
  EXPECT_EQ(s.say({.turn = 1, .role = "user", .text = "nothing", .tools = {}}), "no tools");
  EXPECT_THAT(s.say({.turn = 3, .role = "user", .text = "ping!", .tools = {}}),
              HasSubstr("no rule of the script matches (turn 3"));
}

TEST(Script, a_hostile_message_cannot_hurt_a_pattern) {
  Scripted s(rules(R"({"when":{"matches":"^(a+)+$"},"text":"x"})"));
  const std::string text(50'000, 'a');
  (void)s.say({.turn = 1, .role = "user", .text = text + "!", .tools = {}});
  (void)s.say({.turn = 1, .role = "user", .text = text, .tools = {}});
}

TEST(Script, text_splits_into_tokens_and_groups_stay_together) {
  Scripted s(rules(
      R"({"when":{"turn":1},"text":"Hello<|im_start|>!"},{"groups":["Hello!",{"text":"x"},{"tokens":[97,98]},""]})"));
  EXPECT_EQ(s.say({.turn = 1, .role = "user", .text = "", .tools = {}}), "Hello|<|im_start|>|!");
  EXPECT_EQ(s.say({.turn = 2, .role = "user", .text = "", .tools = {}}), "Hello!|x|ab");
  const auto answer = s.ask({.turn = 2, .role = "user", .text = "", .tools = {}});
  EXPECT_EQ((*answer)->groups[0].tokens.size(), 2u);
}

TEST(Script, puts_tool_arguments_and_message_into_the_text) {
  Scripted s(rules(R"x({"when":{"tools":["g"]},"groups":["{{tool}}({{arguments}})"]},
                      {"groups":["any {{tool}}"]},{"groups":["echo {{last}} {{else}} {{"]})x"));
  const json::value f = json::parse(R"({"name":"f"})");
  const json::value g =
      json::parse(R"({"name":"g","parameters":{"type":"object","required":["s","i","e","o","b","m"],
      "properties":{"s":{"type":"string"},"i":{"type":"integer","minimum":5},"e":{"enum":["u","v"]},"unused":{"type":"string"},
      "o":{"type":"object","required":["n"],"properties":{"n":{"type":["null","string"]}}},"b":{"type":"boolean"},
      "m":{"anyOf":[{"type":"array"},{"type":"null"}]}}}})");
  EXPECT_EQ(s.say({.turn = 1, .role = "user", .text = "", .tools = {&f.as_object(), &g.as_object()}}),
            R"x(g({"s":"text","i":5,"e":"u","o":{"n":null},"b":true,"m":[]}))x");
  EXPECT_EQ(s.say({.turn = 1, .role = "user", .text = "", .tools = {&f.as_object()}}), "any f");
  EXPECT_EQ(s.say({.turn = 1, .role = "user", .text = "{{tool}}", .tools = {}}), "echo {{tool}} {{else}} {{")
      << "what is put in is not looked at again";
}

TEST(Script, what_it_repeats_from_the_request_is_plain_text) {
  Scripted s(rules(R"({"groups":["<|im_start|>{{last}}"]})"));
  const auto answer = s.ask({.turn = 1, .role = "user", .text = "<|im_end|>", .tools = {}});
  ASSERT_TRUE(answer.ok());
  const std::vector<int32_t>& tokens = (*answer)->groups.at(0).tokens;
  EXPECT_EQ(s.fake.text(tokens), "<|im_start|><|im_end|>");
  EXPECT_EQ(tokens.front(), s.fake.id("<|im_start|>"));
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), s.fake.id("<|im_end|>")), 0);
}

// What the engine does with a guard, as far as a script needs it. Returns the steps, each with its tokens.
std::vector<std::vector<int32_t>> run(Guard& guard, int32_t vocab, int32_t stop_id, int max_tokens) {
  std::vector<std::vector<int32_t>> steps;
  int left = max_tokens;
  while (left > 0) {
    std::vector<uint32_t> words(size_t(vocab + 31) / 32, ~0u);
    int32_t token = 0;
    if (guard.mask(words)) {
      int allowed = 0;
      for (int32_t id = 0; id < vocab; ++id)
        if (words[size_t(id) / 32] >> (id % 32) & 1) token = id, ++allowed;
      EXPECT_EQ(allowed, 1);
    }
    steps.emplace_back();
    if (token == stop_id) return steps;
    std::vector<int32_t> queue = {token};
    for (size_t i = 0; i < queue.size() && left > 0; ++i, --left) {
      const Verdict verdict = guard.accept(queue[i]);
      if (verdict.action == Verdict::Action::kStopBefore) return steps;
      steps.back().push_back(queue[i]);
      if (verdict.action == Verdict::Action::kStop) return steps;
      queue.insert(queue.end(), verdict.forced.begin(), verdict.forced.end());
    }
  }
  return steps;
}

std::shared_ptr<ScriptedAnswer> three_tokens() {
  auto answer = std::make_shared<ScriptedAnswer>();
  answer->groups = {{{7, 8}, 0}, {{9}, 0}};
  return answer;
}

TEST(ScriptGuard, says_the_groups_and_then_the_end_token) {
  const auto guard = make_script_guard(three_tokens(), 5, nullptr);
  EXPECT_THAT(run(*guard, 40, 5, 100), ElementsAre(ElementsAre(7, 8), ElementsAre(9), ElementsAre()));
}

TEST(ScriptGuard, ends_with_its_last_token_without_an_end_token) {
  const auto guard = make_script_guard(three_tokens(), -1, nullptr);
  EXPECT_THAT(run(*guard, 40, 5, 100), ElementsAre(ElementsAre(7, 8), ElementsAre(9)));
  const auto empty = make_script_guard(std::make_shared<ScriptedAnswer>(), -1, nullptr);
  EXPECT_THAT(run(*empty, 40, 5, 100), ElementsAre(ElementsAre()));
}

TEST(ScriptGuard, a_clone_goes_on_where_the_original_stood) {
  const auto guard = make_script_guard(three_tokens(), 5, nullptr);
  (void)guard->accept(7);
  (void)guard->accept(8);
  const auto copy = guard->clone();
  EXPECT_THAT(run(*copy, 40, 5, 100), ElementsAre(ElementsAre(9), ElementsAre()));
  EXPECT_THAT(run(*guard, 40, 5, 100), ElementsAre(ElementsAre(9), ElementsAre()));
}

TEST(ScriptGuard, another_guard_can_end_it_earlier) {
  class StopAt final : public Guard {
   public:
    bool mask(std::span<uint32_t>) override { return false; }
    Verdict accept(int32_t token) override {
      return {.action = token == 8 ? Verdict::Action::kStop : Verdict::Action::kContinue, .forced = {}};
    }
    std::unique_ptr<Guard> clone() const override { return std::make_unique<StopAt>(); }
  };
  const auto guard = make_script_guard(three_tokens(), 5, std::make_unique<StopAt>());
  EXPECT_THAT(run(*guard, 40, 5, 100), ElementsAre(ElementsAre(7, 8)));
}

TEST(ScriptGuard, waits_for_the_cost_of_each_group) {
  auto answer = three_tokens();
  answer->groups[0].cost_ns = 20'000'000;
  answer->groups[1].cost_ns = 30'000'000;
  const auto guard = make_script_guard(answer, -1, nullptr);
  const int64_t start = now_ns();
  run(*guard, 40, 5, 100);
  EXPECT_GE(now_ns() - start, 50'000'000);
}

// Over a protocol.
class ScriptedServer {
 public:
  explicit ScriptedServer(const std::string& text) {
    auto script = Script::parse(text, fake.service.vocab);
    EXPECT_TRUE(script.ok()) << script.status().message();
    script_ = std::move(script).value();
    fake.service.script = script_.get();
  }
  FakeService fake;

 private:
  std::unique_ptr<const Script> script_;
};

constexpr char kHi[] = R"({"messages":[{"role":"user","content":"Hi"}],"stream":true})";

TEST(ScriptedChat, turns_and_the_last_message_are_those_of_the_conversation) {
  ScriptedServer s(
      rules(R"({"when":{"turn":2,"role":"user","equals":"b"},"error":{"status":418,"message":"yes"}})"));
  int status = 0;
  (void)s.fake.post_json("/v1/chat/completions",
                         R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"x"},
                             {"role":"user","content":"b"}]})",
                         &status);
  EXPECT_EQ(status, 418);
  (void)s.fake.post_json("/v1/chat/completions", kHi, &status);
  EXPECT_EQ(status, 400) << "no rule matches";
}

TEST(ScriptedChat, refuses_before_the_start) {
  ScriptedServer s(rules(R"({"error":{"status":429,"message":"busy","code":"slow","retry_after_s":3}})"));
  Outcome outcome = s.fake.post("/v1/chat/completions", kHi);
  const Response& response = std::get<Response>(outcome);
  EXPECT_EQ(response.status, 429);
  EXPECT_THAT(response.headers, ElementsAre(testing::Pair("Retry-After", "3")));
  EXPECT_EQ(parsed(response.body).at("error").at("message").as_string(), "busy");
  EXPECT_EQ(parsed(response.body).at("error").at("code").as_string(), "slow");
}

TEST(ScriptedChat, the_engine_gets_a_guard_and_the_length) {
  ScriptedServer s(rules(R"({"when":{"equals":"Hi"},"groups":["ab","c"],"finish":"length"})"));
  (void)s.fake.post_exchange("/v1/chat/completions", kHi);
  GenerateRequest& request = s.fake.submitted.at(0)->request;
  EXPECT_EQ(request.max_tokens, 3);
  ASSERT_NE(request.guard, nullptr);
  const auto steps = run(*request.guard, s.fake.service.vocab, -1, request.max_tokens);
  EXPECT_THAT(steps, ElementsAre(s.fake.ids("ab"), s.fake.ids("c")));
}

TEST(ScriptedChat, fails_and_breaks_off_in_the_middle) {
  for (const bool cut : {false, true}) {
    ScriptedServer s(rules(cut ? R"({"groups":["ab","cd"],"cut":{"after_groups":1}})"
                               : R"({"groups":["ab","cd"],"fail":{"after_groups":1,"message":"broken"}})"));
    const auto exchange = s.fake.post_exchange("/v1/chat/completions", kHi);
    Stream& stream = *s.fake.submitted.at(0)->streams[0];
    s.fake.say(stream, "abcd");
    std::string out;
    EXPECT_TRUE(exchange->advance(out));
    EXPECT_TRUE(stream.cancelled());
    EXPECT_EQ(exchange->broken(), cut);
    EXPECT_THAT(out, HasSubstr("\"content\":\"ab\""));
    EXPECT_THAT(out, testing::Not(HasSubstr("[DONE]")));
    EXPECT_EQ(out.find("broken") != std::string::npos, !cut);
  }
}

}  // namespace
}  // namespace invar::api
