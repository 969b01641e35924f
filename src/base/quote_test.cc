#include "base/quote.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace invar
