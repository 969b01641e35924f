#include "cli/quote_piece.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace invar {
namespace {

TEST(QuotePiece, keeps_text_and_escapes_what_could_steer_a_terminal) {
  EXPECT_EQ(quote_piece("a b"), "\"a b\"");
  EXPECT_EQ(quote_piece("gr\xC3\xBC\xC3\x9F"), "\"gr\xC3\xBC\xC3\x9F\"");
  EXPECT_EQ(quote_piece("a\n\t\x1b[31m"), "\"a\\n\\t\\x1b[31m\"");
  EXPECT_EQ(quote_piece("\"\\"), "\"\\\"\\\\\"");
  EXPECT_EQ(quote_piece("\xC2\x9B"), "\"\\xc2\\x9b\"");
  EXPECT_EQ(quote_piece(std::string_view("\0", 1)), "\"\\x00\"");
}

TEST(QuotePiece, shows_bytes_that_are_no_characters) {
  EXPECT_EQ(quote_piece("\xE2\x82"), "\"\\xe2\\x82\"");
  EXPECT_EQ(quote_piece("\xED\xA0\x80"), "\"\\xed\\xa0\\x80\"");  // a surrogate
  EXPECT_EQ(quote_piece("\xC0\x80"), "\"\\xc0\\x80\"");           // overlong
  EXPECT_FALSE(is_utf8("\xF4\x90\x80\x80"));
  EXPECT_TRUE(is_utf8("\xF4\x8F\xBF\xBF"));
}

TEST(QuotePiece, cuts_what_is_long) {
  EXPECT_EQ(quote_piece("abcdef", 3), "\"abc\"...");
}

}  // namespace
}  // namespace invar
