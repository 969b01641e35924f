#include "base/quote.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace invar {
namespace {

TEST(Quote, plain_text_stays_and_quotes_are_escaped) {
  EXPECT_EQ(quote("a b"), "\"a b\"");
  EXPECT_EQ(quote("gr\xC3\xBC\xC3\x9F"), "\"gr\xC3\xBC\xC3\x9F\"");
  EXPECT_EQ(quote("\"\\"), "\"\\\"\\\\\"");
  EXPECT_EQ(printable("say \"a\\b\""), "say \"a\\b\"");
}

TEST(Quote, what_steers_a_terminal_is_shown_as_bytes) {
  EXPECT_EQ(quote("a\n\t\x1b[31m\r"), "\"a\\n\\t\\x1b[31m\\x0d\"");
  EXPECT_EQ(printable(std::string_view("\0\x7f", 2)), "\\x00\\x7f");
  EXPECT_EQ(printable("\xC2\x9B"), "\\xc2\\x9b");
  EXPECT_EQ(printable("\u202E\u2066\u200F\u2028"),
            "\\xe2\\x80\\xae\\xe2\\x81\\xa6\\xe2\\x80\\x8f\\xe2\\x80\\xa8");
  EXPECT_EQ(printable("\u2013\u20AC"), "\u2013\u20AC");  // their neighbours are ordinary
}

TEST(Quote, bytes_that_are_no_character_are_shown_as_bytes) {
  EXPECT_EQ(quote("\xE2\x82"), "\"\\xe2\\x82\"");
  EXPECT_EQ(quote("\xED\xA0\x80"), "\"\\xed\\xa0\\x80\"");  // a surrogate
  EXPECT_EQ(quote("\xC0\x80"), "\"\\xc0\\x80\"");           // overlong
}

TEST(Quote, long_text_is_cut) {
  EXPECT_EQ(quote("abcdef", 3), "\"abc\"...");
  EXPECT_EQ(quote("abc", 3), "\"abc\"");
  EXPECT_EQ(printable("abcdefgh", 6), "abc...fgh");
  EXPECT_EQ(printable("abcdefgh", 8), "abcdefgh");
  EXPECT_EQ(printable("ab\u20ACcd\u20ACef", 8), "ab...ef");  // no half characters at the cuts
  EXPECT_EQ(printable("\x01\x02\x03", 8), "\\x01...\\x03");
  EXPECT_LT(printable(std::string(100000, '\x01')).size(), 210u);
  EXPECT_LT(quote(std::string(100000, '\x01')).size(), 120u);
  EXPECT_EQ(quote(std::string(1000, 'a'), kQuoteAll).size(), 1002u);
}

TEST(QuoteAll, keeps_text_and_escapes_what_could_steer_a_terminal) {
  EXPECT_EQ(quote("a b", kQuoteAll), "\"a b\"");
  EXPECT_EQ(quote("gr\xC3\xBC\xC3\x9F", kQuoteAll), "\"gr\xC3\xBC\xC3\x9F\"");
  EXPECT_EQ(quote("a\n\t\x1b[31m", kQuoteAll), "\"a\\n\\t\\x1b[31m\"");
  EXPECT_EQ(quote("\"\\", kQuoteAll), "\"\\\"\\\\\"");
  EXPECT_EQ(quote("\xC2\x9B", kQuoteAll), "\"\\xc2\\x9b\"");
  EXPECT_EQ(quote(std::string_view("\0", 1), kQuoteAll), "\"\\x00\"");
}

TEST(QuoteAll, shows_bytes_that_are_no_characters) {
  EXPECT_EQ(quote("\xE2\x82", kQuoteAll), "\"\\xe2\\x82\"");
  EXPECT_EQ(quote("\xED\xA0\x80", kQuoteAll), "\"\\xed\\xa0\\x80\"");  // a surrogate
  EXPECT_EQ(quote("\xC0\x80", kQuoteAll), "\"\\xc0\\x80\"");           // overlong
  EXPECT_FALSE(is_utf8("\xF4\x90\x80\x80"));
  EXPECT_TRUE(is_utf8("\xF4\x8F\xBF\xBF"));
}

TEST(QuoteAll, cuts_what_is_long) {
  EXPECT_EQ(quote("abcdef", 3), "\"abc\"...");
}

TEST(PrintableWithin, leaves_ordinary_text_alone) {
  EXPECT_EQ(printable_within("gr\xC3\xBC\xC3\x9F \"a\\b\"", 100), "gr\xC3\xBC\xC3\x9F \"a\\b\"");
  EXPECT_EQ(printable_within("", 100), "");
}

TEST(PrintableWithin, shows_what_could_steer_a_terminal) {
  EXPECT_EQ(printable_within("a\n\t\x1b[31m\x7f", 100), "a\\n\\t\\x1b[31m\\x7f");
  EXPECT_EQ(printable_within("\xC2\x9B", 100), "\\xc2\\x9b");
  EXPECT_EQ(printable_within("\xE2\x80\xAE", 100), "\\xe2\\x80\\xae");
  EXPECT_EQ(printable_within("\xFFx", 100), "\\xffx");
}

TEST(PrintableWithin, cuts_the_middle_of_what_is_long) {
  const std::string text = "start " + std::string(5000, 'x') + " end";
  const std::string cut = printable_within(text, 40);
  EXPECT_LE(cut.size(), 40u);
  EXPECT_TRUE(cut.starts_with("start x")) << cut;
  EXPECT_TRUE(cut.ends_with("x end")) << cut;
  EXPECT_NE(cut.find("x...x"), std::string::npos) << cut;
  EXPECT_EQ(printable_within(std::string(40, 'x'), 40), std::string(40, 'x'));
  EXPECT_LE(printable_within(std::string(40, '\n'), 40).size(), 40u);
  // Two bytes each: a cut inside one shows neither half.
  std::string umlauts;
  for (int i = 0; i < 50; ++i)
    umlauts += "\xC3\xBC";
  EXPECT_EQ(printable_within(umlauts, 41).find("\\x"), std::string::npos);
}

TEST(PrintableWithin, json_keeps_its_meaning_without_control_characters) {
  EXPECT_EQ(json_for_terminal("{\"gr\xC3\xBC\":\"\xC2\x9B\x7F\\u001b\"}"),
            "{\"gr\xC3\xBC\":\"\\u009b\\u007f\\u001b\"}");
}

}  // namespace
}  // namespace invar
