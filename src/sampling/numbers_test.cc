#include "sampling/numbers.h"

#include <gtest/gtest.h>

#include <set>

#include "sampling/testing/sampling_fixture.h"

namespace invar {
namespace {

TEST(SamplingNumbers, no_two_share_a_name_or_a_member) {
  std::set<std::string> names, flags, gguf, hugging_face;
  const auto add = [](std::set<std::string>& to, const char* name) {
    if (name != nullptr) EXPECT_TRUE(to.insert(name).second) << name;
  };
  for (const SamplingNumber& n : sampling_numbers()) {
    add(names, n.name), add(names, n.alias), add(flags, n.flags);
    add(gguf, n.gguf), add(hugging_face, n.hugging_face);
    for (const SamplingNumber& other : sampling_numbers())
      EXPECT_EQ(n.member == other.member, &n == &other) << n.name << " " << other.name;
  }
}

TEST(SamplingNumbers, what_is_within_the_range_suits_the_sampler) {
  for (const SamplingNumber& n : sampling_numbers()) {
    EXPECT_TRUE(n.within(n.get(SamplingParams()))) << n.name;
    for (const double x : {n.min, n.max}) {
      EXPECT_TRUE(n.within(x)) << n.name;
      SamplingParams params;
      n.set(x, &params);
      EXPECT_TRUE(params.validate(10).ok()) << n.name << " " << x << ": " << params.validate(10).message();
    }
    EXPECT_FALSE(n.within(n.min - 1)) << n.name;
    EXPECT_FALSE(n.within(n.max + 1)) << n.name;
    EXPECT_FALSE(n.within(NAN)) << n.name;
  }
}

TEST(SamplingNumbers, a_temperature_too_small_to_divide_by_becomes_0) {
  SamplingParams params;
  const SamplingNumber& temperature = sampling_numbers()[0];
  ASSERT_STREQ(temperature.name, "temperature");
  temperature.set(1e-6, &params);
  EXPECT_EQ(params.temperature, kMinTemperature);
  for (const double x : {9e-7, 1e-45, 1e-300}) {
    temperature.set(x, &params);
    EXPECT_EQ(params.temperature, 0.0f) << x;
  }
}

// The least values of these are words for "off" or for "the most likely token".
TEST(SamplingNumbers, least_values_mean_what_clients_mean_by_them) {
  const Row row = {1, 3, 2, -1};
  EXPECT_EQ(chained(row, {.top_k = -1}), row);
  EXPECT_EQ(chained(row, {.top_n_sigma = -1.0f}), row);
  EXPECT_EQ(left_in(chained(row, {.top_p = 0.0f})), Ids{1});
  EXPECT_EQ(left_in(chained(row, {.typical_p = 0.0f})).size(), 1u);
}

}  // namespace
}  // namespace invar
