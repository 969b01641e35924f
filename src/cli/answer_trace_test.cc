#include "cli/answer_trace.h"

#include <gtest/gtest.h>

namespace invar {
namespace {

AnswerTrace trace(std::initializer_list<const char*> frames) {
  AnswerTrace t;
  for (const char* frame : frames)
    t.add(frame);
  return t;
}

// The difference as one line: "3 field: recorded / replayed", "" = none.
std::string diff(const AnswerTrace& recorded, const AnswerTrace& replayed, bool whole = true) {
  const auto d = AnswerTrace::first_difference(recorded, replayed, whole);
  return d ? std::to_string(d->frame) + " " + d->field + ": " + d->recorded + " / " + d->replayed : "";
}

constexpr const char* kFrames[] = {
    R"({"id":"x1","created":5,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})",
    R"({"id":"x1","created":5,"model":"m","choices":[{"index":0,"delta":{"content":"Hel"},"logprobs":{"content":[{"token":"Hel","logprob":-0.5}]},"finish_reason":null}]})",
    R"({"id":"x1","created":5,"model":"m","choices":[{"index":0,"delta":{"content":"lo"},"logprobs":{"content":[{"token":"lo","logprob":-0.25}]},"finish_reason":null}]})",
    R"({"id":"x1","created":5,"model":"m","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"invar":{"seed":7,"output_digest":"ab"}})",
    "[DONE]"};

AnswerTrace recorded() {
  return trace({kFrames[0], kFrames[1], kFrames[2], kFrames[3], kFrames[4]});
}

TEST(AnswerTrace, ids_times_and_the_cut_into_frames_do_not_count) {
  const AnswerTrace other = trace(
      {R"({"id":"y2","created":9,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})",
       R"({"id":"y2","created":9,"model":"m","choices":[{"index":0,"delta":{"content":"Hello"},"logprobs":{"content":[{"token":"Hel","logprob":-0.5},{"token":"lo","logprob":-0.25}]},"finish_reason":null}]})",
       kFrames[3], kFrames[4]});
  EXPECT_EQ(diff(recorded(), other), "");
  EXPECT_EQ(diff(other, recorded()), "");
  ASSERT_NE(recorded().value("invar.seed"), nullptr);
  EXPECT_EQ(*recorded().value("invar.seed"), "7");
  EXPECT_EQ(recorded().value("invar.none"), nullptr);
}

TEST(AnswerTrace, interleaved_choices_are_told_apart) {
  const char *a = R"({"choices":[{"index":0,"text":"a"}]})", *b = R"({"choices":[{"index":1,"text":"b"}]})";
  EXPECT_EQ(diff(trace({a, b, a}), trace({b, a, a})), "");
  EXPECT_EQ(diff(trace({a, b, a}), trace({b, a, b})), "3 choices[0].text: \"aa\" / \"a\"");
}

TEST(AnswerTrace, the_earliest_difference_counts_in_whichever_field_it_is) {
  const char *a = R"({"choices":[{"index":0,"text":"a"}]})", *b = R"({"choices":[{"index":1,"text":"b"}]})";
  const char *x = R"({"choices":[{"index":0,"text":"x"}]})", *y = R"({"choices":[{"index":1,"text":"y"}]})";
  EXPECT_EQ(diff(trace({a, b, a, b}), trace({a, y, x, y})), "2 choices[1].text: \"bb\" / \"yy\"");
}

TEST(AnswerTrace, names_the_frame_in_which_a_text_differs) {
  AnswerTrace other = trace({kFrames[0], kFrames[1]});
  other.add(
      R"({"choices":[{"index":0,"delta":{"content":"p"},"logprobs":{"content":[{"token":"p","logprob":-0.25}]},"finish_reason":null}]})");
  other.add(kFrames[3]);
  other.add(kFrames[4]);
  EXPECT_EQ(diff(recorded(), other), "3 choices[0].delta.content: \"Hello\" / \"Help\"");
}

TEST(AnswerTrace, names_the_member_of_an_entry_that_differs) {
  AnswerTrace other = trace({kFrames[0], kFrames[1]});
  other.add(
      R"({"model":"m","choices":[{"index":0,"delta":{"content":"lo"},"logprobs":{"content":[{"token":"lo","logprob":-0.75}]},"finish_reason":null}]})");
  other.add(kFrames[3]);
  other.add(kFrames[4]);
  EXPECT_EQ(diff(recorded(), other), "3 choices[0].logprobs.content[1].logprob: -0.25 / -0.75");
}

TEST(AnswerTrace, a_missing_end_is_a_difference_unless_the_record_was_cut_off) {
  const AnswerTrace cut = trace({kFrames[0], kFrames[1]});
  EXPECT_EQ(diff(cut, recorded(), false), "");
  EXPECT_NE(diff(cut, recorded(), true), "");
  // What was recorded must come again.
  EXPECT_NE(diff(recorded(), cut, false), "");
  EXPECT_EQ(diff(recorded(), trace({kFrames[0], kFrames[1], kFrames[2], kFrames[3]})),
            "5 data: [DONE] / nothing");
}

TEST(AnswerTrace, bodies_are_compared_field_by_field) {
  const char* body =
      R"({"id":"a","usage":{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":2}},"tokens":[1,2,3]})";
  EXPECT_EQ(
      diff(
          trace({body}),
          trace(
              {R"({"id":"b","usage":{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":0}},"tokens":[1,2,3]})"})),
      "");
  EXPECT_EQ(diff(trace({body}), trace({R"({"usage":{"prompt_tokens":4},"tokens":[1,2,3]})"})),
            "1 usage.prompt_tokens: 3 / 4");
  EXPECT_EQ(diff(trace({body}), trace({R"({"usage":{"prompt_tokens":3},"tokens":[1,5]})"})),
            "1 tokens[1]: 2 / 5");
  EXPECT_EQ(diff(trace({R"({"a":1})"}), trace({R"({"a":1,"b":2})"})), "1 b: nothing / 2");
}

TEST(AnswerTrace, times_do_not_count_however_deep_they_are) {
  const auto models = [](int time, const char* owner) {
    const std::string t = std::to_string(time);
    return trace({(R"({"object":"list","created":)" + t + R"(,"data":[{"id":"m","created":)" + t +
                   R"(,"owned_by":")" + owner + R"(","versions":[{"created":)" + t + "}]}]}")
                      .c_str()});
  };
  EXPECT_EQ(diff(models(5, "invar"), models(9, "invar")), "");
  EXPECT_EQ(diff(models(5, "invar"), models(9, "nobody")), "1 data[0].owned_by: \"invar\" / \"nobody\"");
  // The name of a model is no id of an answer.
  EXPECT_EQ(diff(trace({R"({"data":[{"id":"a"}]})"}), trace({R"({"data":[{"id":"b"}]})"})),
            "1 data[0].id: \"a\" / \"b\"");
}

TEST(AnswerTrace, differences_inside_characters_show_whole_characters) {
  // "\xC3\xA4" and "\xC3\xB6" share their first byte.
  EXPECT_EQ(diff(trace({"{\"text\":\"\xC3\xA4\"}"}), trace({"{\"text\":\"\xC3\xB6\"}"})),
            "1 text: \"\xC3\xA4\" / \"\xC3\xB6\"");
  // Nothing that is shown steers the terminal.
  const std::string shown =
      diff(trace({R"({"text":"\u001b[2J","data":1})"}), trace({R"({"text":"\u009b","data":1})"}));
  EXPECT_EQ(shown.find_first_of("\x1b"), std::string::npos) << shown;
}

}  // namespace
}  // namespace invar
