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
      {"top_k", [](SamplingParams& p) { p.top_k = -2; }},
      {"top_p", [](SamplingParams& p) { p.top_p = -0.1f; }},
      {"top_p", [](SamplingParams& p) { p.top_p = 1.5f; }},
      {"min_p", [](SamplingParams& p) { p.min_p = -0.1f; }},
      {"min_p", [](SamplingParams& p) { p.min_p = NAN; }},
      {"presence_penalty", [](SamplingParams& p) { p.presence_penalty = INFINITY; }},
      {"frequency_penalty", [](SamplingParams& p) { p.frequency_penalty = NAN; }},
      {"repetition_penalty", [](SamplingParams& p) { p.repetition_penalty = 0; }},
      {"typical_p", [](SamplingParams& p) { p.typical_p = -0.1f; }},
      {"top_n_sigma", [](SamplingParams& p) { p.top_n_sigma = -2; }},
      {"xtc_probability", [](SamplingParams& p) { p.xtc_probability = 1.1f; }},
      {"xtc_threshold", [](SamplingParams& p) { p.xtc_threshold = -0.1f; }},
      {"dynatemp_range", [](SamplingParams& p) { p.dynatemp_range = -1; }},
      {"dynatemp_exponent", [](SamplingParams& p) { p.dynatemp_exponent = -1; }},
      {"dry_multiplier", [](SamplingParams& p) { p.dry_multiplier = -1; }},
      {"dry_base", [](SamplingParams& p) { p.dry_base = 0.5f; }},
      {"dry_allowed_length", [](SamplingParams& p) { p.dry_allowed_length = -1; }},
      {"dry_penalty_last_n", [](SamplingParams& p) { p.dry_penalty_last_n = -2; }},
      {"repeat_last_n", [](SamplingParams& p) { p.penalty_last_n = -2; }},
      {"mirostat", [](SamplingParams& p) { p.mirostat = 3; }},
      {"mirostat_tau", [](SamplingParams& p) { p.mirostat_tau = -1; }},
      {"mirostat_eta", [](SamplingParams& p) { p.mirostat_eta = 2; }},
      {"min_tokens", [](SamplingParams& p) { p.min_tokens = -1; }},
      {"chain", [](SamplingParams& p) { p.chain = {200}; }},
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
      {"repetition_penalty", &SamplingParams::repetition_penalty},
      {"typical_p", &SamplingParams::typical_p},
      {"top_n_sigma", &SamplingParams::top_n_sigma},
      {"xtc_probability", &SamplingParams::xtc_probability},
      {"xtc_threshold", &SamplingParams::xtc_threshold},
      {"dynatemp_range", &SamplingParams::dynatemp_range},
      {"dynatemp_exponent", &SamplingParams::dynatemp_exponent},
      {"dry_multiplier", &SamplingParams::dry_multiplier},
      {"dry_base", &SamplingParams::dry_base},
      {"mirostat_tau", &SamplingParams::mirostat_tau},
      {"mirostat_eta", &SamplingParams::mirostat_eta}};
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
