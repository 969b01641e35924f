#include "cli/sampling_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace invar {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

Result<GenerateRequest> request_of(std::vector<std::string> args) {
  Flags flags("run", "");
  SamplingFlags sampling;
  sampling.declare(flags);
  const auto parsed = flags.parse(args);
  if (!parsed.ok()) return parsed.status();
  RETURN_IF_ERROR(sampling.finish());
  GenerateRequest request;
  sampling.apply(request);
  return request;
}

TEST(SamplingFlags, every_flag_reaches_its_field) {
  const auto r = request_of({"--temp",
                             "0.5",
                             "--top-k",
                             "40",
                             "--top-p",
                             "0.9",
                             "--min-p",
                             "0.05",
                             "--presence-penalty",
                             "1",
                             "--frequency-penalty",
                             "-2",
                             "--repeat-penalty",
                             "1.25",
                             "--logit-bias",
                             "5:-1.5",
                             "--logit-bias",
                             "7:2",
                             "--seed",
                             "9",
                             "--logprobs",
                             "3",
                             "--max-tokens",
                             "17",
                             "--ignore-eos",
                             "--stop-id",
                             "11",
                             "--stop-id",
                             "12"});
  ASSERT_TRUE(r.ok()) << r.status().message();
  const SamplingParams& p = r->sampling;
  EXPECT_EQ(p.temperature, 0.5f);
  EXPECT_EQ(p.top_k, 40);
  EXPECT_EQ(p.top_p, 0.9f);
  EXPECT_EQ(p.min_p, 0.05f);
  EXPECT_EQ(p.presence_penalty, 1);
  EXPECT_EQ(p.frequency_penalty, -2);
  EXPECT_EQ(p.repetition_penalty, 1.25f);
  EXPECT_THAT(p.logit_bias, ElementsAre(Pair(5, -1.5f), Pair(7, 2.0f)));
  EXPECT_EQ(p.seed, 9u);
  EXPECT_EQ(p.logprobs, 3);
  EXPECT_EQ(r->max_tokens, 17);
  EXPECT_TRUE(r->ignore_eos);
  EXPECT_THAT(r->stop_ids, ElementsAre(11, 12));
}

TEST(SamplingFlags, without_a_seed_two_runs_differ) {
  EXPECT_NE(request_of({})->sampling.seed, request_of({})->sampling.seed);
}

TEST(SamplingFlags, malformed_values_name_the_flag) {
  EXPECT_THAT(request_of({"--logit-bias", "5"}).status().message(), HasSubstr("--logit-bias 5"));
  EXPECT_THAT(request_of({"--logit-bias", "x:1"}).status().message(), HasSubstr("--logit-bias x"));
  EXPECT_THAT(request_of({"--stop-id", "-3"}).status().message(), HasSubstr("--stop-id -3"));
  EXPECT_THAT(request_of({"--top-p", "1.5"}).status().message(), HasSubstr("--top-p 1.5"));
}

}  // namespace
}  // namespace invar
