#include "format/hf_config.h"

#include <gmock/gmock.h>

namespace invar {
namespace {

using ::testing::HasSubstr;

HfConfig config() {
  auto c = HfConfig::parse(R"({"hidden_size": 64, "eps": 1e-05, "whole": 64.0, "flag": false, "name": "silu",
    "nothing": null, "layers": [1, 0, true], "types": ["full", "slide"], "mixed": [1, "x"],
    "rope_scaling": {"factor": 8.0, "rope_type": "llama3", "deep": {"x": 3}}})",
                           "config.json");
  EXPECT_TRUE(c.ok()) << c.status().message();
  return *std::move(c);
}

TEST(HfConfig, reads_typed_values_also_nested_ones) {
  const HfConfig c = config();
  EXPECT_EQ(**c.get_int("hidden_size"), 64);
  EXPECT_EQ(**c.get_int("whole"), 64);
  EXPECT_EQ(**c.get_double("hidden_size"), 64.0);
  EXPECT_EQ(**c.get_double("eps"), 1e-05);
  EXPECT_EQ(**c.get_bool("flag"), false);
  EXPECT_EQ(**c.get_string("name"), "silu");
  EXPECT_EQ(**c.get_ints("layers"), (std::vector<int64_t>{1, 0, 1}));
  EXPECT_EQ(**c.get_strings("types"), (std::vector<std::string>{"full", "slide"}));
  EXPECT_EQ(**c.get_double("rope_scaling.factor"), 8.0);
  EXPECT_EQ(**c.get_int("rope_scaling.deep.x"), 3);
}

TEST(HfConfig, absent_and_null_are_the_same_at_every_level) {
  const HfConfig c = config();
  for (const char* key : {"missing", "missing.x", "nothing", "nothing.factor", "rope_scaling.missing"}) {
    EXPECT_FALSE(c.has(key)) << key;
    EXPECT_FALSE(c.get_int(key)->has_value()) << key;
    EXPECT_FALSE(c.get_strings(key)->has_value()) << key;
  }
  EXPECT_TRUE(c.has("rope_scaling"));
}

TEST(HfConfig, what_is_no_object_around_a_key_is_named_and_not_absent) {
  const HfConfig c = config();
  EXPECT_THAT(c.get_int("name.x").status().message(),
              HasSubstr("config.json: \"name\" should be an object, but is a string"));
  EXPECT_THAT(c.get_string("rope_scaling.deep.x.y").status().message(),
              HasSubstr("\"rope_scaling.deep.x\" should be an object, but is an integer"));
  EXPECT_FALSE(c.has("name.x"));
  EXPECT_TRUE(*c.has_members("rope_scaling.deep"));
  EXPECT_FALSE(*c.has_members("missing"));
  EXPECT_THAT(c.has_members("layers").status().message(), HasSubstr("\"layers\" should be an object"));
  const auto parts = HfConfig::parse(R"({"text_config": 7, "hidden_size": 64})", "config.json");
  EXPECT_THAT(parts->get_int("hidden_size").status().message(),
              HasSubstr("\"text_config\" should be an object"));
}

TEST(HfConfig, a_wrong_type_names_file_and_key) {
  const HfConfig c = config();
  EXPECT_THAT(c.get_int("name").status().message(),
              HasSubstr("config.json: \"name\" should be an integer, but is a string"));
  EXPECT_THAT(c.get_int("eps").status().message(), HasSubstr("\"eps\""));
  EXPECT_THAT(c.get_bool("hidden_size").status().message(),
              HasSubstr("\"hidden_size\" should be true or false"));
  EXPECT_FALSE(c.get_double("flag").ok());
  EXPECT_FALSE(c.get_string("hidden_size").ok());
  EXPECT_FALSE(c.get_ints("mixed").ok());
  EXPECT_FALSE(c.get_ints("hidden_size").ok());
  EXPECT_FALSE(c.get_strings("mixed").ok());
  EXPECT_THAT(c.get_double("rope_scaling.rope_type").status().message(), HasSubstr("rope_scaling.rope_type"));
}

TEST(HfConfig, a_document_that_is_no_object_is_an_error_that_names_the_file) {
  EXPECT_THAT(HfConfig::parse("[1]", "config.json").status().message(), HasSubstr("config.json is an array"));
  EXPECT_THAT(HfConfig::parse("{", "config.json").status().message(), HasSubstr("config.json: JSON byte"));
}

}  // namespace
}  // namespace invar
