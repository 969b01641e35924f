#include "text/text_stream.h"

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "text/stream_fixtures.h"

namespace invar::text {
namespace {

struct Answer {
  std::string text, bytes;  // bytes: of the entries
  std::vector<LogprobEntry> entries;
  size_t pieces = 0;
  TextEnd end = TextEnd::kNone;
  int32_t matched = -1;
};

Answer streamed(const std::shared_ptr<const Tokenizer>& tokenizer, std::span<const int32_t> ids,
                const std::vector<std::string>& stops, bool logprobs = true,
                Detokenizer::Options decoding = {}) {
  auto compiled = StopStrings::compile(stops);
  EXPECT_TRUE(compiled.ok());
  TextStream stream(tokenizer, {.stops = *compiled, .decoding = decoding, .logprobs = logprobs});
  Answer answer;
  const auto take = [&](const TextPiece& piece) {
    EXPECT_TRUE(is_utf8(piece.text)) << "a piece cuts a character";
    answer.text += piece.text;
    answer.pieces += !piece.text.empty();
    for (const LogprobEntry& entry : piece.entries) {
      answer.bytes += entry.token.bytes;
      answer.entries.push_back(entry);
    }
    EXPECT_TRUE(answer.text.starts_with(answer.bytes)) << "an entry came before its text";
  };
  size_t pushed = 0;
  for (const int32_t id : ids) {
    TextPiece piece;
    const float logprob = -static_cast<float>(pushed);
    const TokenScore alternatives[] = {{id, logprob}, {'a', -50.0f}};
    stream.push(id, logprob, alternatives, piece);
    if (stream.end() == TextEnd::kNone || piece.entries.size() + answer.entries.size() > pushed) ++pushed;
    take(piece);
  }
  TextPiece last;
  stream.finish(TextEnd::kLength, last);
  take(last);
  EXPECT_EQ(answer.entries.size(), logprobs ? pushed : 0);
  answer.end = stream.end();
  answer.matched = stream.matched();
  return answer;
}

TEST(TextStream, random_answers_end_where_the_reference_ends) {
  std::mt19937 random(3);
  const std::vector<StreamWorld> worlds = random_worlds(random);
  int cut = 0, broken = 0;
  for (int round = 0; round < 3000; ++round) {
    SCOPED_TRACE(round);
    const StreamCase c = random_case(random, worlds[static_cast<size_t>(round) % worlds.size()]);
    const Detokenizer::Options decoding{.skip_control = random() % 4 != 0,
                                        .at_text_start = random() % 2 == 0};
    const std::string whole = detokenize(c.tokenizer, c.ids, decoding);
    const Cut expected = cut_at_stop(whole, c.stops);
    const Answer answer = streamed(c.tokenizer, c.ids, c.stops, true, decoding);
    ASSERT_EQ(answer.text, expected.text);
    ASSERT_EQ(answer.bytes, expected.text);
    ASSERT_EQ(answer.matched < 0 ? "" : c.stops[static_cast<size_t>(answer.matched)],
              expected.stop < 0 ? "" : c.stops[static_cast<size_t>(expected.stop)]);
    ASSERT_EQ(answer.end, expected.stop < 0 ? TextEnd::kLength : TextEnd::kStop);
    ASSERT_EQ(streamed(c.tokenizer, c.ids, c.stops, false, decoding).text, expected.text);
    if (HasFailure()) return;
    for (size_t i = 0; i < answer.entries.size(); ++i) {
      ASSERT_EQ(answer.entries[i].token.id, c.ids[i]);
      ASSERT_EQ(answer.entries[i].token.logprob, -static_cast<float>(i));
    }
    cut += expected.stop >= 0;
    broken += whole.find("\uFFFD") != std::string::npos;
  }
  EXPECT_GT(cut, 700);
  EXPECT_GT(broken, 500);
}

TEST(TextStream, the_tokens_that_carry_the_bytes_do_not_matter) {
  std::mt19937 random(5);
  const std::vector<StreamWorld> worlds = random_worlds(random);
  for (int round = 0; round < 500; ++round) {
    const StreamCase c = random_case(random, worlds[static_cast<size_t>(round) % worlds.size()]);
    if (c.fallback) continue;
    std::vector<int32_t> bytes;
    for (const int32_t id : c.ids)
      if (!c.tokenizer->is_control(id))
        for (const char b : c.tokenizer->token_bytes(id))
          bytes.push_back(static_cast<uint8_t>(b));
    ASSERT_EQ(streamed(c.tokenizer, bytes, c.stops).text, streamed(c.tokenizer, c.ids, c.stops).text);
  }
}

TEST(TextStream, only_what_may_become_a_stop_string_waits) {
  const auto tokenizer = byte_level_tokenizer({"abc", "hello "});
  const std::vector<std::string> strings = {"abcd", "xx"};
  TextStream stream(tokenizer, {.stops = *StopStrings::compile(strings), .decoding = {}, .logprobs = false});
  const auto push = [&](int32_t id) {
    TextPiece piece;
    stream.push(id, 0, {}, piece);
    return piece.text;
  };
  EXPECT_EQ(push(257), "hello ");
  EXPECT_EQ(push(256), "");
  EXPECT_EQ(push(256), "abc");
  EXPECT_EQ(push('x'), "abc");
  EXPECT_EQ(push('y'), "xy");
  EXPECT_EQ(push(256), "");
  EXPECT_EQ(push('d'), "");
  EXPECT_EQ(stream.end(), TextEnd::kStop);
  EXPECT_EQ(stream.matched(), 0);
  EXPECT_EQ(push('z'), "");  // nothing after the end
}

TEST(TextStream, what_waits_is_shown_when_no_stop_string_comes) {
  const Answer answer = streamed(byte_level_tokenizer({}), std::vector<int32_t>{'a', 'E', 'N'}, {"END"});
  EXPECT_EQ(answer.text, "aEN");
  EXPECT_EQ(answer.end, TextEnd::kLength);
}

TEST(TextStream, a_stop_string_before_min_tokens_is_text) {
  const auto tokenizer = byte_level_tokenizer({"abc", "END", "EN", "D!"});
  const std::vector<std::string> strings = {"END"};
  const auto stops = StopStrings::compile(strings);
  const auto text_of = [&](int32_t min_tokens, const std::vector<int32_t>& ids) {
    TextStream stream(tokenizer, {.stops = *stops, .decoding = {}, .min_tokens = min_tokens});
    TextPiece piece;
    for (const int32_t id : ids)
      stream.push(id, 0, {}, piece);
    stream.finish(TextEnd::kLength, piece);
    return piece.text;
  };
  EXPECT_EQ(text_of(2, {256, 257, 256, 257}), "abc");
  EXPECT_EQ(text_of(3, {256, 257, 256, 257}), "abcENDabc");
  EXPECT_EQ(text_of(3, {256, 258, 259, 256}), "abc");
  EXPECT_EQ(text_of(5, {256, 257, 256, 257}), "abcENDabcEND");
}

TEST(TextStream, of_two_stop_strings_the_first_to_end_wins_then_the_longer) {
  const auto t = byte_level_tokenizer({"abcde"});
  EXPECT_EQ(streamed(t, std::vector<int32_t>{256}, {"abcde", "bc"}).text, "a");
  EXPECT_EQ(streamed(t, std::vector<int32_t>{256}, {"cd", "bcd"}).text, "a");
  EXPECT_EQ(streamed(t, std::vector<int32_t>{256}, {"cd", "bcd"}).matched, 1);
}

TEST(TextStream, entries_describe_tokens_and_alternatives) {
  const auto t = byte_level_tokenizer({"caf\xC3"});
  TextStream stream(t, {.stops = nullptr, .decoding = {}, .logprobs = true});
  TextPiece piece;
  const TokenScore alternatives[] = {{0xA9, -0.5f}, {257, -1.5f}, {9999, -2.5f}};
  stream.push(256, -0.25f, {}, piece);
  EXPECT_EQ(piece.text, "caf");
  EXPECT_TRUE(piece.entries.empty());  // its last byte is not decided
  stream.push(0xA9, -0.5f, alternatives, piece);
  EXPECT_EQ(piece.text, "caf\u00E9");
  ASSERT_EQ(piece.entries.size(), 2u);
  EXPECT_EQ(piece.entries[0].token.bytes, "caf\xC3");
  EXPECT_EQ(piece.entries[0].token.text, "caf\uFFFD");
  EXPECT_EQ(piece.entries[0].token.logprob, -0.25f);
  EXPECT_TRUE(piece.entries[0].alternatives.empty());
  EXPECT_EQ(piece.entries[1].token.bytes, "\xA9");
  ASSERT_EQ(piece.entries[1].alternatives.size(), 3u);
  EXPECT_EQ(piece.entries[1].alternatives[1].id, 257);
  EXPECT_EQ(piece.entries[1].alternatives[1].text, "<|end|>");
  EXPECT_EQ(piece.entries[1].alternatives[1].logprob, -1.5f);
  EXPECT_EQ(piece.entries[1].alternatives[2].bytes, "");
}

TEST(TextStream, a_hidden_control_token_has_an_entry_without_bytes) {
  const Answer answer = streamed(byte_level_tokenizer({}), std::vector<int32_t>{'a', 256, 'b'}, {});
  EXPECT_EQ(answer.text, "ab");
  ASSERT_EQ(answer.entries.size(), 3u);
  EXPECT_EQ(answer.entries[1].token.text, "<|end|>");
  EXPECT_EQ(answer.entries[1].token.bytes, "");
}

TEST(TextStream, broken_bytes_show_in_the_entry_of_the_first_of_them) {
  const Answer answer = streamed(byte_level_tokenizer({}), std::vector<int32_t>{0xF0, 0x9F, 'b', 0xE2}, {});
  EXPECT_EQ(answer.text, "\uFFFDb\uFFFD");
  ASSERT_EQ(answer.entries.size(), 4u);
  EXPECT_EQ(answer.entries[0].token.bytes, "\uFFFD");
  EXPECT_EQ(answer.entries[1].token.bytes, "");
  EXPECT_EQ(answer.entries[3].token.bytes, "\uFFFD");
}

TEST(TextStream, the_blank_that_a_text_loses_at_its_start_is_in_no_entry) {
  TextStream stream(fallback_tokenizer({"\u2581", "\u2581a"}),
                    {.stops = nullptr, .decoding = {.at_text_start = true}, .logprobs = true});
  TextPiece piece;
  stream.push(259, 0, {}, piece);
  ASSERT_EQ(piece.entries.size(), 1u);
  EXPECT_EQ(piece.entries[0].token.bytes, "");
  EXPECT_EQ(piece.entries[0].token.text, "");
  piece.clear();
  stream.push(260, 0, {}, piece);
  ASSERT_EQ(piece.entries.size(), 1u);
  EXPECT_EQ(piece.entries[0].token.bytes, " a");
}

TEST(TextStream, entries_of_a_stop_string_stay_without_its_bytes) {
  const Answer answer =
      streamed(byte_level_tokenizer({"okEN", "D!"}), std::vector<int32_t>{'a', 256, 257, 'x'}, {"END"});
  EXPECT_EQ(answer.text, "aok");
  ASSERT_EQ(answer.entries.size(), 3u);
  EXPECT_EQ(answer.entries[1].token.bytes, "ok");
  EXPECT_EQ(answer.entries[1].token.text, "ok");
  EXPECT_EQ(answer.entries[2].token.bytes, "");
  EXPECT_EQ(answer.entries[2].token.text, "");
  EXPECT_EQ(answer.entries[2].token.id, 257);
}

}  // namespace
}  // namespace invar::text
