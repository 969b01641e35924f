#include "sampling/params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace invar {
namespace {

TEST(SamplingParams, defaults_are_valid) {
  EXPECT_TRUE(SamplingParams().validate(10).ok());
}

TEST(SamplingParams, errors_name_the_field) {
  const struct {
    const char* field;
    std::function<void(SamplingParams&)> spoil;
  } cases[] = {
      {"temperature", [](SamplingParams& p) { p.temperature = -1; }},
      {"temperature", [](SamplingParams& p) { p.temperature = NAN; }},
      {"temperature", [](SamplingParams& p) { p.temperature = INFINITY; }},
      {"temperature", [](SamplingParams& p) { p.temperature = 9e-7f; }},
      {"temperature", [](SamplingParams& p) { p.temperature = 1e-45f; }},
      {"top_k", [](SamplingParams& p) { p.top_k = -1; }},
      {"top_p", [](SamplingParams& p) { p.top_p = 0; }},
      {"top_p", [](SamplingParams& p) { p.top_p = 1.5f; }},
      {"min_p", [](SamplingParams& p) { p.min_p = -0.1f; }},
      {"min_p", [](SamplingParams& p) { p.min_p = NAN; }},
      {"presence_penalty", [](SamplingParams& p) { p.presence_penalty = INFINITY; }},
      {"frequency_penalty", [](SamplingParams& p) { p.frequency_penalty = NAN; }},
      {"repetition_penalty", [](SamplingParams& p) { p.repetition_penalty = 0; }},
      {"logit_bias", [](SamplingParams& p) { p.logit_bias = {{10, 1.0f}}; }},
      {"logit_bias", [](SamplingParams& p) { p.logit_bias = {{-1, 1.0f}}; }},
      {"logit_bias", [](SamplingParams& p) { p.logit_bias = {{1, INFINITY}}; }},
      {"logprobs", [](SamplingParams& p) { p.logprobs = -2; }},
      {"logprobs", [](SamplingParams& p) { p.logprobs = 11; }},
  };
  for (const auto& c : cases) {
    SamplingParams params;
    c.spoil(params);
    const Status status = params.validate(10);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << c.field;
    EXPECT_EQ(status.message().rfind(c.field, 0), 0u) << status.message();
  }
  SamplingParams cool;
  cool.temperature = kMinTemperature;
  EXPECT_TRUE(cool.validate(10).ok());
  SamplingParams ban;
  ban.logit_bias = {{1, -INFINITY}};
  EXPECT_TRUE(ban.validate(10).ok());
}

TEST(SamplingParams, no_field_may_be_nan_or_infinite) {
  const std::pair<const char*, float SamplingParams::*> fields[] = {
      {"temperature", &SamplingParams::temperature},
      {"top_p", &SamplingParams::top_p},
      {"min_p", &SamplingParams::min_p},
      {"presence_penalty", &SamplingParams::presence_penalty},
      {"frequency_penalty", &SamplingParams::frequency_penalty},
      {"repetition_penalty", &SamplingParams::repetition_penalty}};
  for (const auto& [name, field] : fields) {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      SamplingParams params;
      params.*field = bad;
      EXPECT_EQ(params.validate(10).message().rfind(name, 0), 0u) << name << " " << bad;
    }
  }
  SamplingParams params;
  params.logit_bias = {{1, NAN}};
  EXPECT_EQ(params.validate(10).message().rfind("logit_bias", 0), 0u);
}

}  // namespace
}  // namespace invar
