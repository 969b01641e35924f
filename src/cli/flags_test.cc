#include "cli/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace invar {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Sample {
  std::string model, kv = "f16";
  int32_t threads = 0, context = 0;
  float temperature = 1;
  uint64_t memory = 0, seed = 0, kept = 5;
  bool seed_given = false, raw = false;
  std::vector<std::string> bias, rest;
  Flags flags{"run", "answers"};

  Sample() {
    flags.text("-m,--model", &model, "FILE", "the model");
    flags.choice("--kv", &kv, {"f16", "bf16", "f32"}, "cache type");
    flags.integer("--threads", &threads, "threads", 1, 1024);
    flags.integer("--ctx,--context", &context, "positions", 1, 4096);
    flags.number("--temp", &temperature, "temperature", 0, 100);
    flags.bytes("--memory", &memory, "pool size");
    flags.bytes_or("--kept", &kept, "off", "kept pages");
    flags.unsigned64("--seed", &seed, &seed_given, "seed");
    flags.on("--raw", &raw, "no template");
    flags.texts("--logit-bias", &bias, "ID:X", "bias");
    flags.rest("PROMPT...", &rest, "the prompt");
    flags.example("invar run hello", "says hello");
  }
  Result<bool> parse(std::vector<std::string> args) { return flags.parse(args); }
  std::string error(std::vector<std::string> args) {
    auto r = flags.parse(args);
    return r.ok() ? "no error" : r.status().message();
  }
};

TEST(Flags, stores_values_of_every_kind_and_keeps_the_order_of_the_rest) {
  Sample s;
  ASSERT_TRUE(s.parse({"one", "-m", "a.gguf", "--kv=f32", "--threads", "3", "two", "--temp", "0.25",
                       "--memory", "2GiB", "--seed", "18446744073709551615", "--raw", "--logit-bias", "1:2",
                       "--logit-bias", "3:-4", "three"})
                  .ok());
  EXPECT_EQ(s.model, "a.gguf");
  EXPECT_EQ(s.kv, "f32");
  EXPECT_EQ(s.threads, 3);
  EXPECT_EQ(s.temperature, 0.25f);
  EXPECT_EQ(s.memory, uint64_t{2} << 30);
  EXPECT_EQ(s.seed, ~uint64_t{0});
  EXPECT_TRUE(s.seed_given);
  EXPECT_TRUE(s.raw);
  EXPECT_THAT(s.bias, ElementsAre("1:2", "3:-4"));
  EXPECT_THAT(s.rest, ElementsAre("one", "two", "three"));
}

TEST(Flags, sizes_may_be_a_word_for_none) {
  Sample s;
  ASSERT_TRUE(s.parse({"--kept", "2MiB"}).ok());
  EXPECT_EQ(s.kept, uint64_t{2} << 20);
  Sample none;
  ASSERT_TRUE(none.parse({"--kept=off"}).ok());
  EXPECT_EQ(none.kept, 0u);
  EXPECT_THAT(Sample().error({"--kept", "0"}), HasSubstr("--kept: must be more than 0 bytes; off says none"));
  EXPECT_THAT(Sample().error({"--kept", "of"}), HasSubstr("--kept (off, or a size)"));
}

TEST(Flags, what_was_not_given_keeps_its_default) {
  Sample s;
  ASSERT_TRUE(s.parse({}).ok());
  EXPECT_EQ(s.kv, "f16");
  EXPECT_EQ(s.threads, 0);
  EXPECT_FALSE(s.seed_given);
  EXPECT_FALSE(s.raw);
}

TEST(Flags, unknown_flag_suggests_the_nearest) {
  EXPECT_EQ(Sample().error({"hello", "--thread", "3"}), "unknown flag --thread; did you mean --threads?");
  EXPECT_EQ(Sample().error({"--tmep=3"}), "unknown flag --tmep; did you mean --temp?");
  EXPECT_EQ(Sample().error({"-t", "3"}), "unknown flag -t; it is called --threads here");
  EXPECT_EQ(Sample().error({"--parallel=3"}), "unknown flag --parallel; see: invar run --help")
      << "not of this verb";
  EXPECT_EQ(Sample().error({"--something-else"}), "unknown flag --something-else; see: invar run --help");
}

TEST(Flags, wrong_values_name_the_flag_and_the_range) {
  EXPECT_EQ(Sample().error({"--threads", "many"}), "--threads many: must be a whole number from 1 to 1024");
  EXPECT_EQ(Sample().error({"--threads", "0"}), "--threads 0: must be a whole number from 1 to 1024");
  EXPECT_EQ(Sample().error({"--threads", "3x"}), "--threads 3x: must be a whole number from 1 to 1024");
  EXPECT_EQ(Sample().error({"--temp", "nan"}), "--temp nan: must be a number from 0 to 100");
  EXPECT_EQ(Sample().error({"--kv", "f61"}), "--kv f61: must be one of f16, bf16, f32; did you mean f16?");
  EXPECT_EQ(Sample().error({"--seed", "-1"}), "--seed -1: must be a whole number from 0 to 2^64 - 1");
  EXPECT_THAT(Sample().error({"--memory", "lots"}), HasSubstr("--memory"));
}

TEST(Flags, missing_value_is_an_error_that_shows_the_form) {
  EXPECT_EQ(Sample().error({"--model"}), "--model needs a value: --model FILE");
}

TEST(Flags, a_value_for_a_switch_is_an_error) {
  EXPECT_EQ(Sample().error({"--raw=perhaps"}), "--raw takes no value");
  EXPECT_EQ(Sample().error({"--raw="}), "--raw takes no value");
}

TEST(Flags, an_empty_value_after_the_equals_sign_does_not_take_the_next_word) {
  EXPECT_EQ(Sample().error({"--model=", "a.gguf", "hello"}), "--model needs a value: --model FILE");
  EXPECT_EQ(Sample().error({"--context=", "12"}), "--context needs a value: --context N");
  EXPECT_EQ(Sample().error({"--logit-bias=", "1:2"}), "--logit-bias needs a value: --logit-bias ID:X");
  Sample s;
  ASSERT_TRUE(s.parse({"--", "--model=", "x"}).ok());
  EXPECT_THAT(s.rest, ElementsAre("--model=", "x"));
}

TEST(Flags, an_empty_value_is_an_error_that_names_the_flag) {
  EXPECT_EQ(Sample().error({"--model", ""}),
            "--model: the value is empty; give --model FILE, or leave it out");
  EXPECT_EQ(Sample().error({"--threads", ""}), "--threads '': must be a whole number from 1 to 1024");
}

TEST(Flags, messages_use_the_first_long_name) {
  EXPECT_EQ(Sample().error({"--ctx", "0"}), "--ctx 0: must be a whole number from 1 to 4096");
  EXPECT_EQ(Sample().error({"--ctx"}), "--ctx needs a value: --ctx N");
  EXPECT_EQ(Sample().error({"--contex", "3"}), "unknown flag --contex; did you mean --context?");
}

TEST(Flags, long_or_strange_values_are_shown_short_and_harmless) {
  const std::string message = Sample().error({"--threads", "\x1b[31m" + std::string(5000, '9')});
  EXPECT_LT(message.size(), 160u);
  EXPECT_EQ(message.find('\x1b'), std::string::npos) << message;
  EXPECT_THAT(message, HasSubstr("must be a whole number from 1 to 1024"));
}

TEST(Flags, after_two_dashes_everything_is_an_argument) {
  Sample s;
  ASSERT_TRUE(s.parse({"--raw", "--", "--kv", "-x"}).ok());
  EXPECT_THAT(s.rest, ElementsAre("--kv", "-x"));
  EXPECT_EQ(s.kv, "f16");
}

TEST(Flags, tells_which_flags_were_given) {
  Sample s;
  ASSERT_TRUE(s.parse({"--kv", "f16"}).ok());
  EXPECT_TRUE(s.flags.given("--kv"));
  EXPECT_FALSE(s.flags.given("--threads"));
  EXPECT_EQ(s.flags.first_given({""}), "--kv");
  EXPECT_EQ(s.flags.first_given({"Another section"}), "");
}

TEST(Flags, help_is_not_an_error_and_shows_examples) {
  Sample s;
  auto r = s.parse({"--help"});
  ASSERT_TRUE(r.ok());
  EXPECT_FALSE(*r);
  EXPECT_THAT(s.flags.help(), HasSubstr("invar run hello"));
  EXPECT_THAT(s.flags.help(), HasSubstr("-m, --model FILE"));
  EXPECT_THAT(s.flags.help(), HasSubstr("f16|bf16|f32"));
}

}  // namespace
}  // namespace invar
