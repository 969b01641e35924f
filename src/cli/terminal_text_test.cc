#include "cli/terminal_text.h"

#include <gtest/gtest.h>

namespace invar {
namespace {

TEST(TerminalText, leaves_ordinary_text_alone) {
  EXPECT_EQ(terminal_text("gr\xC3\xBC\xC3\x9F \"a\\b\"", 100), "gr\xC3\xBC\xC3\x9F \"a\\b\"");
  EXPECT_EQ(terminal_text("", 100), "");
}

TEST(TerminalText, shows_what_could_steer_a_terminal) {
  EXPECT_EQ(terminal_text("a\n\t\x1b[31m\x7f", 100), "a\\n\\t\\x1b[31m\\x7f");
  EXPECT_EQ(terminal_text("\xC2\x9B", 100), "\\xc2\\x9b");
  EXPECT_EQ(terminal_text("\xE2\x80\xAE", 100), "\\xe2\\x80\\xae");
  EXPECT_EQ(terminal_text("\xFFx", 100), "\\xffx");
}

TEST(TerminalText, cuts_the_middle_of_what_is_long) {
  const std::string text = "start " + std::string(5000, 'x') + " end";
  const std::string cut = terminal_text(text, 40);
  EXPECT_LE(cut.size(), 40u);
  EXPECT_TRUE(cut.starts_with("start x")) << cut;
  EXPECT_TRUE(cut.ends_with("x end")) << cut;
  EXPECT_NE(cut.find("x...x"), std::string::npos) << cut;
  EXPECT_EQ(terminal_text(std::string(40, 'x'), 40), std::string(40, 'x'));
  EXPECT_LE(terminal_text(std::string(40, '\n'), 40).size(), 40u);
  // Two bytes each: a cut inside one shows neither half.
  std::string umlauts;
  for (int i = 0; i < 50; ++i)
    umlauts += "\xC3\xBC";
  EXPECT_EQ(terminal_text(umlauts, 41).find("\\x"), std::string::npos);
}

TEST(TerminalText, json_keeps_its_meaning_without_control_characters) {
  EXPECT_EQ(json_for_terminal("{\"gr\xC3\xBC\":\"\xC2\x9B\x7F\\u001b\"}"),
            "{\"gr\xC3\xBC\":\"\\u009b\\u007f\\u001b\"}");
}

}  // namespace
}  // namespace invar
