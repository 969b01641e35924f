#include "format/json_value.h"

#include <gmock/gmock.h>

namespace invar {
namespace {

using ::testing::HasSubstr;

constexpr JsonLimits kLimits{.bytes = 1 << 20, .values = 1000, .depth = 8};

std::string error_of(const std::string& text) {
  const auto value = parse_json(text, kLimits);
  return value.ok() ? "ok" : value.status().message();
}

TEST(JsonValue, builds_nested_documents_in_order) {
  const auto v =
      parse_json(R"({"b": [1, -2, 2.5, true, null, "x\u00e9\n"], "a": {"k": {}}, "e": []})", kLimits);
  ASSERT_TRUE(v.ok()) << v.status().message();
  const auto& object = std::get<JsonValue::Object>(v->data);
  ASSERT_EQ(object.size(), 3u);
  EXPECT_EQ(object[0].name, "b");
  const auto& array = std::get<JsonValue::Array>(object[0].value.data);
  ASSERT_EQ(array.size(), 6u);
  EXPECT_EQ(std::get<int64_t>(array[1].data), -2);
  EXPECT_EQ(std::get<double>(array[2].data), 2.5);
  EXPECT_EQ(std::get<bool>(array[3].data), true);
  EXPECT_TRUE(std::holds_alternative<std::nullptr_t>(array[4].data));
  EXPECT_EQ(std::get<std::string>(array[5].data), "x\xc3\xa9\n");
  EXPECT_NE(v->find("a")->find("k"), nullptr);
  EXPECT_EQ(v->find("c"), nullptr);
  EXPECT_EQ(object[0].value.find("a"), nullptr);
}

TEST(JsonValue, doubles_are_the_nearest_to_their_text) {
  const auto v =
      parse_json("[1e-05, 1e-06, 0.1, 123456789.123456789e-7, 1.7976931348623157e308, 5e-324]", kLimits);
  ASSERT_TRUE(v.ok());
  const double want[] = {1e-05, 1e-06, 0.1, 123456789.123456789e-7, 1.7976931348623157e308, 5e-324};
  for (size_t i = 0; i < 6; ++i)
    EXPECT_EQ(std::get<double>(std::get<JsonValue::Array>(v->data)[i].data), want[i]) << i;
}

TEST(JsonValue, refuses_what_a_lenient_reader_would_pass) {
  EXPECT_THAT(error_of(R"({"a": 1, "a": 2})"), HasSubstr("\"a\" occurs twice"));
  EXPECT_THAT(error_of(R"({"a": {"b": 1, "b": 2}})"), HasSubstr("\"b\" occurs twice"));
  EXPECT_EQ(error_of(R"({"a": {"b": 1}, "c": {"b": 1}})"), "ok");
  EXPECT_THAT(error_of("[18446744073709551615]"), HasSubstr("does not fit"));
  EXPECT_THAT(error_of("[1e400]"), HasSubstr("byte"));
  EXPECT_THAT(error_of("{} {}"), HasSubstr("text after the document"));
  EXPECT_EQ(error_of("{} \n"), "ok");
  for (const char* bad :
       {"", "{", "[1,", "[1,]", "{\"a\"}", "nul", "NaN", "[Infinity]", "'a'", "[01]", "\"\xff\"", "// c\n1"})
    EXPECT_THAT(error_of(bad), HasSubstr("JSON byte")) << bad;
}

TEST(JsonValue, depth_size_and_number_of_values_are_bounded) {
  EXPECT_EQ(error_of(std::string(8, '[') + std::string(8, ']')), "ok");
  EXPECT_NE(error_of(std::string(9, '[') + std::string(9, ']')), "ok");
  EXPECT_NE(error_of(std::string(1 << 19, '[')), "ok");
  EXPECT_THAT(error_of(std::string((1 << 20) + 1, ' ')), HasSubstr("longer than"));
  std::string many = "[0";
  for (int i = 0; i < 1000; ++i)
    many += ",0";
  EXPECT_THAT(error_of(many + "]"), HasSubstr("too many values"));
}

TEST(JsonValue, every_truncation_is_an_error) {
  const std::string text = R"({"a": [1.5e3, "x\u00e9", true, null], "b": {"c": -7}})";
  EXPECT_EQ(error_of(text), "ok");
  for (size_t n = 0; n < text.size(); ++n)
    EXPECT_NE(error_of(text.substr(0, n)), "ok") << n;
}

}  // namespace
}  // namespace invar
