#include "api/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace invar::api {
namespace {

using testing::HasSubstr;

std::string error_of_text(const std::string& text) {
  const auto value = parse_json(text);
  return value.ok() ? "accepted" : value.status().message();
}

std::string again(const std::string& text) {
  const auto value = parse_json(text);
  if (!value.ok()) return value.status().message();
  std::string out;
  append_json(out, *value);
  return out;
}

TEST(JsonText, says_what_is_wrong_with_a_document) {
  const struct {
    std::string text;
    const char* part;
  } cases[] = {
      {"", "empty"},
      {"{", "ends too early"},
      {"nul", "ends too early"},
      {"{} x", "byte 3: text after the document"},
      {"{\"a\":\"\xff\"}", "byte 6: it is not UTF-8"},
      {"{\"a\":\"\xc3\"}", "not UTF-8"},
      {"{\"a\":\"\xed\xa0\x80\"}", "not UTF-8"},
      {"{\"a\":\"\xc0\x80\"}", "not UTF-8"},
      {R"(["\ud800"])", "half of a surrogate pair"},
      {R"(["\uDBff x"])", "half of a surrogate pair"},
      {R"(["\ud83d\u0041"])", "half of a surrogate pair"},
      {R"(["\udc00"])", "half of a surrogate pair"},
      {"[1e999]", "too large"},
      {"[-1e400]", "too large"},
      {"[1e99999999999]", "too large"},
      {"[NaN]", "not valid JSON"},
      {"[Infinity]", "not valid JSON"},
      {"[01]", "not valid JSON"},
      {"[1,]", "not valid JSON"},
      {"{'a':1}", "not valid JSON"},
      {"// c\n{}", "not valid JSON"},
      {std::string("[\"a\0b\"]", 7), "not valid JSON"},
      {"[\"a\nb\"]", "not valid JSON"},
      {std::string(65, '['), "nested too deeply"},
      {std::string(100'000, '['), "nested too deeply"},
  };
  for (const auto& c : cases)
    EXPECT_THAT(error_of_text(c.text), HasSubstr(c.part)) << c.text.substr(0, 80);
}

TEST(JsonText, bounds_the_number_of_values) {
  EXPECT_TRUE(parse_json("[1,2,3]", {.values = 4}).ok());
  const auto value = parse_json("[1,2,3]", {.values = 3});
  ASSERT_FALSE(value.ok());
  EXPECT_THAT(value.status().message(), HasSubstr("too many values"));
}

TEST(JsonText, reads_what_it_wrote) {
  EXPECT_EQ(again(R"({ "b" : [ 1 , -2.5, true, null, "\u00e9\n\"\\\u0000" ], "a" : {} })"),
            R"({"b":[1,-2.5,true,null,"é\n\"\\\u0000"],"a":{}})");
  EXPECT_EQ(again(R"(["\ud83d\ude00"])"), "[\"\xF0\x9F\x98\x80\"]");
}

TEST(JsonText, keeps_numbers_exactly) {
  EXPECT_EQ(again("[0.1, 1.0, -0.0, 18446744073709551615, -9223372036854775808, 9007199254740993]"),
            "[0.1,1.0,-0.0,18446744073709551615,-9223372036854775808,9007199254740993]");
  EXPECT_EQ(again("[1e-400]"), "[0.0]");
  // A literal that a sloppy reader misses by one unit in the last place.
  EXPECT_EQ(parse_json("[9007199254740993.0]")->at(0).as_double(), 9007199254740992.0);
  EXPECT_EQ(parse_json("[0.30000000000000004]")->at(0).as_double(), 0.30000000000000004);
}

TEST(JsonText, the_last_of_equal_keys_counts) {
  EXPECT_EQ(again(R"({"a":1,"b":2,"a":3})"), R"({"a":3,"b":2})");
}

TEST(JsonText, replaces_bytes_that_are_no_text) {
  std::string out;
  append_json_string(out, "a\xF0\x9F|\xFF");
  EXPECT_EQ(out, "\"a\xEF\xBF\xBD\xEF\xBF\xBD|\xEF\xBF\xBD\"");
}

TEST(JsonText, floats_read_back_as_the_same_bits) {
  for (const float x : {-0.1f, -1e-30f, -123456.78f, 0.0f, std::nextafter(-1.0f, 0.0f)}) {
    std::string out;
    append_json_float(out, x);
    EXPECT_EQ(float(std::strtod(out.c_str(), nullptr)), x) << out;
    EXPECT_EQ(std::strtof(out.c_str(), nullptr), x) << out;
  }
  std::string out;
  append_json_float(out, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(out, "-9999.0");
}

}  // namespace
}  // namespace invar::api
