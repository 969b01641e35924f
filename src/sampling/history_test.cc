// What hangs on the tokens said so far: DRY, the windows of the penalties, min_tokens; and the order of the
// chain.
#include <functional>

#include "sampling/chain.h"
#include "sampling/processor.h"
#include "sampling/testing/sampling_fixture.h"
#include "tensor/exact_math.h"

namespace invar {
namespace {

using Tokens = std::vector<int32_t>;

std::shared_ptr<const DryBreakers> breakers(const std::vector<Tokens>& sequences) {
  auto b = std::make_shared<DryBreakers>();
  for (const Tokens& s : sequences)
    b->add(s);
  return b;
}

// The definition, position by position and token by token. 0 = no repetition.
std::vector<int32_t> repeat_lengths(Tokens history, int32_t vocab, int32_t last_n,
                                    const std::vector<Tokens>& sequences) {
  if (last_n >= 0 && history.size() > size_t(last_n)) history.erase(history.begin(), history.end() - last_n);
  const int32_t n = int32_t(history.size());
  int32_t last_end = 0;
  for (int32_t end = 1; end <= n; ++end)
    for (const Tokens& s : sequences)
      if (int32_t(s.size()) <= end &&
          std::equal(s.begin(), s.end(), history.begin() + end - int32_t(s.size())))
        last_end = end;
  std::vector<int32_t> lengths(size_t(vocab), 0);
  for (int32_t at = 0; at < n; ++at) {
    int32_t length = 0;
    while (length < at && n - 1 - length >= last_end &&
           history[size_t(at - 1 - length)] == history[size_t(n - 1 - length)])
      ++length;
    int32_t& best = lengths[size_t(history[size_t(at)])];
    best = std::max(best, length);
  }
  for (const Tokens& s : sequences)
    if (s.size() == 1) lengths[size_t(s[0])] = 0;
  return lengths;
}

void expect_dry(const Tokens& history, int32_t vocab, SamplingParams params,
                const std::vector<Tokens>& sequences) {
  params.dry_breakers = breakers(sequences);
  ChainInput c;
  c.history = history;
  const Row zero(size_t(vocab), 0.0f);
  const Row y = chained(zero, params, c);
  const std::vector<int32_t> lengths = repeat_lengths(history, vocab, params.dry_penalty_last_n, sequences);
  for (int32_t t = 0; t < vocab; ++t) {
    const int32_t length = lengths[size_t(t)];
    double expected = 0;
    if (length >= std::max(params.dry_allowed_length, 1) && params.dry_penalty_last_n != 0)
      expected = double(params.dry_multiplier) *
                 std::pow(double(params.dry_base), length - params.dry_allowed_length);
    ASSERT_NEAR(-double(y[size_t(t)]), std::min(expected, 3.4028234e38), 1e-6 * expected + 1e-12)
        << "token " << t << ", length " << length;
  }
}

TEST(Dry, holds_back_the_token_that_would_lengthen_a_repetition) {
  ChainInput c;
  c.history = {1, 2, 3, 4, 9, 1, 2, 3};
  const Row y = chained(Row(10, 1.0f), {.dry_multiplier = 0.5f, .dry_base = 2}, c);
  Row expected(10, 1.0f);
  expected[4] = 1 - 0.5f * 2;  // a repetition of 3, 2 allowed
  EXPECT_EQ(y, expected);
  const Row longer = chained(Row(10, 1.0f), {.dry_multiplier = 0.5f, .dry_allowed_length = 4}, c);
  EXPECT_EQ(longer, Row(10, 1.0f));
}

TEST(Dry, agrees_with_the_definition_on_random_histories) {
  std::mt19937 random(4);
  for (int trial = 0; trial < 400; ++trial) {
    const int32_t vocab = 2 + int32_t(random() % 6);
    Tokens history(random() % 120);
    for (int32_t& t : history)
      t = int32_t(random()) % vocab, t = std::abs(t);
    std::vector<Tokens> sequences;
    for (uint32_t i = random() % 3; i > 0; --i) {
      Tokens s(1 + random() % 3);
      for (int32_t& t : s)
        t = int32_t(random() % uint32_t(vocab));
      sequences.push_back(s);
    }
    SamplingParams params{.dry_multiplier = 0.8f, .dry_base = 1.3f};
    params.dry_allowed_length = int32_t(random() % 5);
    params.dry_penalty_last_n = std::vector<int32_t>{-1, -1, 0, 1, 2, 17, 64, 1000}[random() % 8];
    expect_dry(history, vocab, params, sequences);
    if (HasFatalFailure()) return;
  }
}

TEST(Dry, breakers_end_a_repetition) {
  const Tokens history = {1, 2, 3, 4, 7, 8, 1, 2, 3};
  const SamplingParams params{.dry_multiplier = 1, .dry_base = 2};
  ChainInput c;
  c.history = history;
  const auto penalty_of_4 = [&](const std::vector<Tokens>& sequences) {
    SamplingParams p = params;
    p.dry_breakers = breakers(sequences);
    return -chained(Row(10, 0.0f), p, c)[4];
  };
  EXPECT_EQ(penalty_of_4({}), 2);
  EXPECT_EQ(penalty_of_4({{1}}), 1) << "2 3 is left";
  EXPECT_EQ(penalty_of_4({{2}}), 0) << "3 alone is allowed";
  EXPECT_EQ(penalty_of_4({{1, 2}}), 0);
  EXPECT_EQ(penalty_of_4({{2, 1}}), 2) << "does not occur";
  EXPECT_EQ(penalty_of_4({{3, 4}}), 2) << "not complete at the end";
  EXPECT_EQ(penalty_of_4({{4}}), 0) << "a breaker itself is never held back";
  EXPECT_EQ(penalty_of_4({{4, 5}}), 2) << "but the head of a longer one is";
  EXPECT_EQ(penalty_of_4({{8, 1, 2}, {2}}), 0);
}

TEST(Dry, long_histories_of_one_token_stay_linear_and_finite) {
  const Tokens history(200000, 3);
  ChainInput c;
  c.history = history;
  Row x(10, 0.0f);
  const Row y = chained(x, {.dry_multiplier = 1, .dry_base = 4}, c);
  EXPECT_EQ(y[3], -std::numeric_limits<float>::max());
  EXPECT_EQ(y[2], 0);
  SamplingParams broken{.dry_multiplier = 1};
  broken.dry_breakers = breakers({Tokens(DryBreakers::kMaxLength, 3)});
  EXPECT_EQ(chained(x, broken, c), x);
}

TEST(Dry, works_at_temperature_zero_and_leaves_excluded_tokens_out) {
  ChainInput c;
  c.history = {1, 2, 3, 1, 2};
  c.mask = {0b0111};
  const Row y = chained(Row(4, 1.0f), {.temperature = 0, .dry_multiplier = 1}, c);
  EXPECT_EQ(y, (Row{1, 1, 1, kExcluded}));
}

// ---- windows

TokenCounts counted(const Tokens& tokens, size_t prompt, int32_t window) {
  TokenCounts counts(window);
  for (size_t n = 1; n <= tokens.size(); ++n)
    counts.appended(std::span(tokens).first(n), prompt);
  return counts;
}

TEST(Windows, counts_are_those_of_the_last_tokens) {
  std::mt19937 random(9);
  Tokens tokens(300);
  for (int32_t& t : tokens)
    t = int32_t(random() % 20);
  for (const size_t prompt : {size_t{0}, size_t{100}, tokens.size()}) {
    for (const int32_t window : {0, 1, 2, 64, 199, 200, 201, 299, 300, 301, -1}) {
      const TokenCounts counts = counted(tokens, prompt, window);
      const size_t from = window < 0 ? 0 : tokens.size() - std::min(tokens.size(), size_t(window));
      std::vector<int32_t> of_prompt(20), generated(20);
      for (size_t i = from; i < tokens.size(); ++i)
        ++(i < prompt ? of_prompt : generated)[size_t(tokens[i])];
      for (const TokenCounts::Entry& e : counts.entries()) {
        EXPECT_EQ(e.of_prompt, std::exchange(of_prompt[size_t(e.token)], 0));
        EXPECT_EQ(e.generated, std::exchange(generated[size_t(e.token)], 0));
      }
      EXPECT_EQ(of_prompt, std::vector<int32_t>(20)) << "every token of the window has an entry";
      EXPECT_EQ(generated, std::vector<int32_t>(20));
    }
  }
}

TEST(Windows, penalties_forget_what_left_the_window) {
  const Tokens tokens = {0, 1, 2, 2, 3};  // the first two are the prompt
  const auto y = [&](int32_t window) {
    ChainInput c;
    c.counts = counted(tokens, 2, window);
    return chained(Row(5, 2.0f),
                   {.presence_penalty = 0.25f, .frequency_penalty = 0.5f, .repetition_penalty = 2}, c);
  };
  EXPECT_EQ(y(0), (Row{2, 2, 2, 2, 2}));
  EXPECT_EQ(y(1), (Row{2, 2, 2, 0.25f, 2}));
  EXPECT_EQ(y(2), (Row{2, 2, 0.25f, 0.25f, 2}));
  EXPECT_EQ(y(3), (Row{2, 2, -0.25f, 0.25f, 2}));
  EXPECT_EQ(y(4), (Row{2, 1, -0.25f, 0.25f, 2}));
  EXPECT_EQ(y(5), (Row{1, 1, -0.25f, 0.25f, 2}));
  EXPECT_EQ(y(-1), y(5));
}

// ---- min_tokens

TEST(MinTokens, excludes_the_ids_unless_nothing_else_is_left) {
  ChainInput c;
  c.not_yet = {1, 3, 1};
  EXPECT_EQ(left(Row(5, 1.0f), {}, c), (Ids{0, 2, 4}));
  c.mask = {0b01010};
  EXPECT_EQ(chained({1, 2, 3, 4, 5}, {}, c), (Row{kExcluded, 2, kExcluded, 4, kExcluded}));
  c.mask = {0b01011};
  EXPECT_EQ(left(Row(5, 1.0f), {}, c), (Ids{0}));
}

TEST(MinTokens, an_id_that_comes_back_can_be_chosen) {
  const Row logits = {1, 2, 3, 4, 5};
  const std::vector<int32_t> not_yet = {1, 3};
  const std::vector<uint32_t> mask = {0b01010};
  for (const float temperature : {0.0f, 1.0f}) {
    const SamplingParams params{.temperature = temperature};
    Sampler sampler(kPlainRows);
    const auto choice = sampler.choose(
        {.logits = logits, .params = params, .counts = {}, .mask = mask, .position = 0, .not_yet = not_yet});
    ASSERT_TRUE(choice.ok()) << choice.status().message();
    EXPECT_TRUE(choice->token == 1 || choice->token == 3) << choice->token;
  }
}

// ---- order

std::vector<std::string> names_of(const std::vector<uint8_t>& chain) {
  std::vector<std::string> names;
  for (const uint8_t i : chain)
    names.push_back(processors()[i].name);
  return names;
}

TEST(Chain, keeps_the_order_that_was_asked_for) {
  using Names = std::vector<std::string>;
  const std::string_view links[] = {"penalties", "dry", "top_k", "temperature", "min_p"};
  EXPECT_EQ(names_of(*chain_of(links)), (Names{"mask", "min_tokens", "repetition", "frequency", "presence",
                                               "dry", "bias", "top_k", "temperature", "min_p", "mirostat"}));
  const std::string_view late[] = {"top_k", "penalties"};
  EXPECT_EQ(names_of(*chain_of(late)), (Names{"mask", "min_tokens", "bias", "top_k", "repetition",
                                              "frequency", "presence", "mirostat"}));
  EXPECT_EQ(names_of(*chain_of({})), (Names{"mask", "min_tokens", "bias", "mirostat"}));
}

TEST(Chain, of_all_links_in_their_order_is_the_default) {
  EXPECT_EQ(link_names(), "penalties, dry, temperature, top_n_sigma, top_k, typ_p, top_p, min_p, xtc");
  const std::string_view all[] = {"penalties", "dry",   "temperature", "top_n_sigma", "top_k",
                                  "typ_p",     "top_p", "min_p",       "xtc"};
  std::vector<std::string> names;
  for (const Processor& p : processors())
    names.push_back(p.name);
  EXPECT_EQ(names_of(*chain_of(all)), names);
}

TEST(Chain, refuses_unknown_and_repeated_names_and_lists_the_known_ones) {
  const std::string_view unknown[] = {"top_k", "top_q"}, twice[] = {"dry", "top_k", "dry"};
  for (const auto& links :
       {std::span<const std::string_view>(unknown), std::span<const std::string_view>(twice)}) {
    const auto chain = chain_of(links);
    ASSERT_FALSE(chain.ok());
    EXPECT_NE(chain.status().message().find(link_names()), std::string::npos);
  }
}

TEST(Chain, order_changes_the_result) {
  const Row x = {std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f)};
  SamplingParams params{.temperature = 0.5f, .min_p = 0.4f};
  const std::string_view hot[] = {"min_p", "temperature"}, cold[] = {"temperature", "min_p"};
  params.chain = *chain_of(hot);
  EXPECT_EQ(left(x, params), (Ids{0, 1, 2}));
  params.chain = *chain_of(cold);
  EXPECT_EQ(left(x, params), (Ids{0, 1}));
  const std::string_view without[] = {"temperature"};
  params.chain = *chain_of(without);
  EXPECT_EQ(left(x, params).size(), 4u) << "what is not named does not run";

  ChainInput c;
  c.counts = counted({0, 0}, 0, -1);
  SamplingParams p{.top_k = 1, .frequency_penalty = 1};
  const std::string_view first[] = {"top_k", "penalties"}, last[] = {"penalties", "top_k"};
  p.chain = *chain_of(first);
  EXPECT_EQ(left(x, p, c), (Ids{0}));
  p.chain = *chain_of(last);
  EXPECT_EQ(left(x, p, c), (Ids{1}));
}

}  // namespace
}  // namespace invar
