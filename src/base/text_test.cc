#include <gtest/gtest.h>

#include <vector>

#include "base/size_text.h"
#include "base/text_distance.h"

namespace invar {
namespace {

TEST(SizeText, ParsesWhatPeopleWrite) {
  const std::pair<const char*, uint64_t> cases[] = {{"0", 0},
                                                    {"17", 17},
                                                    {"17b", 17},
                                                    {"1k", 1024},
                                                    {"512M", 512u << 20},
                                                    {"2GiB", 2ull << 30},
                                                    {"2 gib", 2ull << 30},
                                                    {"2GB", 2'000'000'000},
                                                    {"1.5G", 3ull << 29},
                                                    {"0.25k", 256},
                                                    {"16Ti", 16ull << 40},
                                                    {"18446744073709551615", UINT64_MAX}};
  for (const auto& [text, bytes] : cases) {
    const auto size = parse_size(text);
    ASSERT_TRUE(size.ok()) << text << ": " << size.status().message();
    EXPECT_EQ(*size, bytes) << text;
  }
}

TEST(SizeText, RefusesTheRestWithTheTextAndAnExample) {
  for (const char* text :
       {"", "G", "-1", "1.G", "1.5", "1x", "1GiBs", "18446744073709551616", "17000000T", "1 2", "nan"}) {
    const auto size = parse_size(text);
    ASSERT_FALSE(size.ok()) << text;
    EXPECT_NE(size.status().message().find(std::string("'") + text + "'"), std::string::npos);
    EXPECT_NE(size.status().message().find("512M"), std::string::npos);
  }
}

TEST(SizeText, PrintsTheLargestFittingUnit) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(1024), "1.0 KiB");
  EXPECT_EQ(size_text((1u << 20) - 1), "1.0 MiB");
  EXPECT_EQ(size_text(103'179'878), "98.4 MiB");
  EXPECT_EQ(size_text(UINT64_MAX), "16.0 EiB");
}

TEST(TextDistance, CountsEditsAndSwaps) {
  EXPECT_EQ(text_distance("", ""), 0);
  EXPECT_EQ(text_distance("abc", ""), 3);
  EXPECT_EQ(text_distance("kitten", "sitting"), 3);
  EXPECT_EQ(text_distance("modle", "model"), 1);
}

TEST(TextDistance, SuggestsOnlyWhatIsNear) {
  const std::vector<std::string> flags = {"--threads", "--model", "--kv", "--memory", "--temperature"};
  EXPECT_EQ(nearest_text("--thread", flags), "--threads");
  EXPECT_EQ(nearest_text("--modle", flags), "--model");
  EXPECT_EQ(nearest_text("--temprature", flags), "--temperature");
  EXPECT_EQ(nearest_text("--colour-of-the-sky", flags), "");
  EXPECT_EQ(nearest_text(std::string(10'000, 'x'), flags), "");
}

}  // namespace
}  // namespace invar
