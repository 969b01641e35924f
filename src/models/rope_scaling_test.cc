#include "models/rope_scaling.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "tensor/float16.h"

namespace invar {
namespace {

using ::testing::HasSubstr;

RopeRule rule_of(const std::string& name) {
  if (name == "linear") return RopeRule::kLinear;
  if (name == "llama3") return RopeRule::kLlama3;
  if (name == "yarn") return RopeRule::kYarn;
  return RopeRule::kPlain;
}

// The file holds what an independent implementation of the contract computed; its first line names the
// columns.
TEST(RopeScaling, frequencies_equal_the_frozen_bits) {
  std::ifstream in(INVAR_TEST_DATA "/rope/frequencies.txt");
  std::string line;
  std::getline(in, line);
  int cases = 0;
  while (std::getline(in, line)) {
    std::istringstream row(line);
    double theta = 0, attention = 0, mscale = 0, mscale_all = 0;
    int32_t dim = 0;
    int truncate = 0;
    std::string rule;
    uint32_t factor_bits = 0, bits = 0;
    RopeScaling s;
    row >> theta >> dim >> rule >> s.factor >> s.original_context >> s.low_freq_factor >>
        s.high_freq_factor >> s.beta_fast >> s.beta_slow >> truncate >> attention >> mscale >> mscale_all >>
        std::hex >> factor_bits;
    ASSERT_TRUE(row) << line;
    s.rule = rule_of(rule);
    s.truncate = truncate != 0;
    if (attention != 0) s.attention_factor = attention;
    if (mscale != 0) s.mscale = mscale, s.mscale_all_dim = mscale_all;
    const auto rope = make_rope(theta, dim, s);
    ASSERT_TRUE(rope.ok()) << rope.status().message();
    EXPECT_EQ(rope->dim, dim);
    EXPECT_EQ(rope->scaled, factor_bits != 0) << line;
    if (rope->scaled) {
      EXPECT_EQ(float_bits(rope->attention_factor), factor_bits) << line;
    }
    for (const float f : rope->inv_freq) {
      ASSERT_TRUE(row >> bits) << line;
      ASSERT_EQ(float_bits(f), bits) << rule << " theta " << theta << " dim " << dim;
    }
    cases++;
  }
  EXPECT_EQ(cases, 17);
}

TEST(RopeScaling, divisors_divide_the_frequencies) {
  const float divisors[] = {1.0f, 3.0f};
  const auto plain = make_rope(10000, 4, {}), divided = make_rope(10000, 4, {}, divisors);
  EXPECT_EQ(divided->inv_freq[0], plain->inv_freq[0]);
  EXPECT_EQ(divided->inv_freq[1], plain->inv_freq[1] / 3.0f);
}

TEST(RopeScaling, longrope_divides_by_two_lists) {
  RopeScaling s{.rule = RopeRule::kLongrope, .factor = 4, .original_context = 64};
  s.short_factor = {1.0f, 1.5f}, s.long_factor = {2.0f, 5.0f};
  const auto plain = make_rope(10000, 4, {}), rope = make_rope(10000, 4, s);
  ASSERT_TRUE(rope.ok()) << rope.status().message();
  const float power = 1.0f / plain->inv_freq[1];
  EXPECT_EQ(rope->inv_freq[1], 1.0f / (1.5f * power));
  EXPECT_EQ(rope->long_inv_freq[0], 0.5f);
  EXPECT_EQ(rope->long_inv_freq[1], 1.0f / (5.0f * power));
  EXPECT_EQ(rope->short_context, 64);
  EXPECT_TRUE(rope->scaled);
  EXPECT_NEAR(rope->attention_factor, std::sqrt(1 + std::log(4.0) / std::log(64.0)), 1e-6);
  s.attention_factor = 1.25;
  EXPECT_EQ(make_rope(10000, 4, s)->attention_factor, 1.25f);
  s.long_factor = {2.0f};
  EXPECT_THAT(make_rope(10000, 4, s).status().message(), HasSubstr("long_factor has 1 elements for 2"));
  s.long_factor = {2.0f, 0.0f};
  EXPECT_THAT(make_rope(10000, 4, s).status().message(), HasSubstr("long_factor is 0"));
}

TEST(RopeScaling, parameters_out_of_range_are_named) {
  const auto message = [](double theta, int32_t dim, RopeScaling s, std::span<const float> divisors = {}) {
    const auto rope = make_rope(theta, dim, s, divisors);
    return rope.ok() ? "ok" : rope.status().message();
  };
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (const double theta : {0.0, -1.0, 1.0, nan, inf, 1e300})
    EXPECT_THAT(message(theta, 8, {}), HasSubstr("rope_theta")) << theta;
  for (const int32_t dim : {0, -2, 7})
    EXPECT_THAT(message(1e4, dim, {}), HasSubstr("rotary dimension")) << dim;
  for (const double bad : {0.0, -1.0, nan, inf, 1e30}) {
    EXPECT_THAT(message(1e4, 8, {.rule = RopeRule::kLinear, .factor = bad}), HasSubstr("rope factor"));
    EXPECT_THAT(message(1e4, 8, {.rule = RopeRule::kYarn, .factor = 2, .original_context = bad}),
                HasSubstr("original_max_position_embeddings"));
    EXPECT_THAT(
        message(1e4, 8, {.rule = RopeRule::kYarn, .factor = 2, .original_context = 64, .beta_fast = bad}),
        HasSubstr("beta_fast"));
    EXPECT_THAT(
        message(1e4, 8,
                {.rule = RopeRule::kLlama3, .factor = 2, .original_context = 64, .low_freq_factor = bad}),
        HasSubstr("low_freq_factor"));
  }
  EXPECT_THAT(
      message(1e4, 8, {.rule = RopeRule::kLlama3, .factor = 2, .original_context = 64, .low_freq_factor = 4}),
      HasSubstr("high_freq_factor"));
  EXPECT_EQ(message(static_cast<double>(1e30f), 8, {}), "ok");  // the most that the flag takes
  const float zero[] = {1, 0, 1, 1}, three[] = {1, 1, 1};
  const float endless[] = {1, 1, 1, std::numeric_limits<float>::infinity()};
  EXPECT_THAT(message(1e4, 8, {}, endless), HasSubstr("divisor is inf, not positive and finite"));
  EXPECT_THAT(message(1e4, 8, {}, zero), HasSubstr("divisor"));
  EXPECT_THAT(message(1e4, 8, {}, three), HasSubstr("3 frequency divisors"));
  const float small[] = {1, 1, 1e-30f, 1};
  EXPECT_THAT(message(1e4, 8, {}, small), HasSubstr("rotary frequency 2"));
  EXPECT_THAT(message(1e4, 8, {.rule = RopeRule::kLinear, .factor = 0x1p-20}),
              HasSubstr("rotary frequency 0"));
}

}  // namespace
}  // namespace invar
