#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "text/detokenizer.h"
#include "text/tokenizer_fixtures.h"

namespace invar::text {
namespace {

// The file's tokenizer; the last one is kept, because building a large one takes seconds.
std::shared_ptr<const Tokenizer> load(const std::string& name) {
  static std::pair<std::string, std::shared_ptr<const Tokenizer>> last;
  if (last.first == name) return last.second;
  auto result = Tokenizer::from_json(cached_file(name + ".json"), "");
  EXPECT_TRUE(result.ok()) << name << ": " << result.status().message();
  if (!result.ok()) return nullptr;
  last = {name, *result};
  return *result;
}

std::shared_ptr<const Tokenizer> from(OwnedVocab& vocab) {
  auto result = Tokenizer::from_gguf(vocab.view());
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *result : nullptr;
}

class TokenizerJson : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerJson, ids_decodes_and_streams_agree_with_the_oracle) {
  const auto tokenizer = load(GetParam());
  ASSERT_NE(tokenizer, nullptr);
  const std::vector<OracleRow> rows = oracle_rows(GetParam());
  expect_oracle_ids(*tokenizer, rows);
  for (const OracleRow& row : rows) {
    const auto decoded = tokenizer->reference_decode(row.ids, false);
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(*decoded, row.decoded);
    expect_streams(tokenizer, row);
    if (HasFatalFailure()) return;
  }
  // Ids in no sensible order, with control tokens shown and hidden.
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<int32_t> ids;
    for (int i = 0; i < 20; ++i)
      ids.push_back(static_cast<int32_t>(random() % tokenizer->vocab_size()));
    const bool skip = round % 2 == 0;
    Detokenizer stream(tokenizer, {.skip_control = skip, .at_text_start = true});
    std::string text;
    for (const int32_t id : ids)
      stream.push(id, text);
    stream.finish(text);
    const auto whole = tokenizer->reference_decode(ids, skip);
    ASSERT_TRUE(whole.ok());
    EXPECT_EQ(text, *whole) << round;
  }
}

TEST(TokenizerWordPiece, minilm_gives_the_oracle_ids_and_texts) {
  const auto tokenizer = load("minilm-wordpiece");
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(std::vector(tokenizer->prefix().begin(), tokenizer->prefix().end()), (std::vector<int32_t>{101}));
  EXPECT_EQ(std::vector(tokenizer->suffix().begin(), tokenizer->suffix().end()), (std::vector<int32_t>{102}));
  const std::vector<OracleRow> rows = oracle_rows("minilm-wordpiece");
  expect_oracle_ids(*tokenizer, rows);
  for (const OracleRow& row : rows) {
    const auto decoded = tokenizer->reference_decode(row.ids, false);
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(*decoded, row.decoded);
    expect_streams(tokenizer, row);
    if (HasFatalFailure()) return;
  }
  // A stream that starts inside a word shows the rest of the word.
  EXPECT_EQ(detokenize(tokenizer, std::vector<int32_t>{2015, 7592, 1012}, {.at_text_start = true}),
            "s hello.");
}

std::shared_ptr<const Tokenizer> load_ranks(const char* name, const char* file) {
  auto result = Tokenizer::from_ranks(name, cached_file(file), "");
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *result : nullptr;
}

TEST(TokenizerRanks, tekken_gives_the_oracle_ids_and_texts) {
  const auto tokenizer = load_ranks("tekken.json", "tekken-240911.json");
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->vocab_size(), 131072);
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_TRUE(tokenizer->add_bos());
  EXPECT_EQ(tokenizer->eos(), 2);
  EXPECT_EQ(tokenizer->id_of("[/INST]"), 4);
  EXPECT_EQ(tokenizer->id_of("<SPECIAL_999>"), 999);
  EXPECT_EQ(*tokenizer->encode("[INST]a</s>", Special::kParse), (std::vector<int32_t>{3, 1097, 2}));
  // Its makers' library never looks for special tokens in a text.
  int special = 0;
  for (const OracleRow& row : oracle_rows("tekken-240911")) {
    EXPECT_EQ(*tokenizer->encode(row.text, Special::kPlain), row.ids) << row.text;
    const auto parsed = *tokenizer->encode(row.text, Special::kParse);
    const bool has_special =
        std::any_of(parsed.begin(), parsed.end(), [&](int32_t id) { return tokenizer->is_control(id); });
    special += has_special;
    if (!has_special) EXPECT_EQ(parsed, row.ids) << row.text;
    const auto decoded = tokenizer->reference_decode(row.ids, false);
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(*decoded, row.decoded);
    expect_streams(tokenizer, row);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(special, 0);
  EXPECT_LT(special, 10);
}

TEST(TokenizerRanks, qwen_tiktoken_gives_the_oracle_ids) {
  const auto tokenizer = load_ranks("qwen.tiktoken", "qwen.tiktoken");
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_FALSE(tokenizer->add_bos());
  EXPECT_EQ(tokenizer->eos(), 151643);
  EXPECT_EQ(tokenizer->id_of("<|im_end|>"), 151645);
  EXPECT_EQ(tokenizer->id_of("<|extra_204|>"), 151850);
  EXPECT_EQ(tokenizer->vocab_size(), 151851);  // tokens of its model's code behind the file's own
  const std::vector<OracleRow> rows = oracle_rows("qwen-tiktoken");
  expect_oracle_ids(*tokenizer, rows);
  for (const OracleRow& row : rows) {
    expect_streams(tokenizer, row);
    if (HasFatalFailure()) return;
  }
}

// A rank file of the 256 bytes and some longer tokens.
std::string tiktoken_file(const std::vector<std::string>& longer) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string file;
  for (int i = 0; i < 256 + static_cast<int>(longer.size()); ++i) {
    const std::string token = i < 256 ? std::string(1, static_cast<char>(i)) : longer[i - 256];
    for (size_t at = 0; at < token.size(); at += 3) {
      uint32_t bits = 0;
      for (size_t k = 0; k < 3; ++k)
        bits = bits << 8 | (at + k < token.size() ? static_cast<uint8_t>(token[at + k]) : 0u);
      for (size_t k = 0; k < 4; ++k)
        file += k <= token.size() - at ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
    }
    file += " " + std::to_string(i) + "\n";
  }
  return file;
}

TEST(TokenizerRanks, the_lowest_rank_joins_first_and_a_whole_piece_needs_no_way_there) {
  const auto t = Tokenizer::from_ranks("qwen.tiktoken", tiktoken_file({"bc", "ab", "abcd"}), "");
  ASSERT_TRUE(t.ok()) << t.status().message();
  EXPECT_EQ(*(*t)->encode("abc", Special::kPlain), (std::vector<int32_t>{'a', 256}));
  EXPECT_EQ(*(*t)->encode("abd", Special::kPlain), (std::vector<int32_t>{257, 'd'}));
  EXPECT_EQ(*(*t)->encode("abcd", Special::kPlain), (std::vector<int32_t>{258}));
  EXPECT_EQ(*(*t)->encode("abcde", Special::kPlain), (std::vector<int32_t>{'a', 256, 'd', 'e'}));
}

TEST(TokenizerRanks, broken_and_unknown_files_are_named_errors) {
  const auto error_of = [](std::string_view name, const std::string& content) {
    const auto result = Tokenizer::from_ranks(name, content, "");
    return result.ok() ? "ok" : result.status().message();
  };
  const std::string good = tiktoken_file({"ab"});
  EXPECT_EQ(error_of("qwen.tiktoken", good), "ok");
  EXPECT_EQ(error_of("other.tiktoken", good),
            "other.tiktoken: the cut and the special tokens of this file are not known (known: tekken.json, "
            "qwen.tiktoken); convert it to tokenizer.json");
  EXPECT_EQ(error_of("qwen.tiktoken", good + "YWI 300\n"),
            "qwen.tiktoken: line 258 is not a token in base64 and rank 257");
  EXPECT_EQ(error_of("qwen.tiktoken", "?? 0\n"), "qwen.tiktoken: line 1 is not a token in base64 and rank 0");
  EXPECT_EQ(error_of("qwen.tiktoken", tiktoken_file({"ab", "ab"})),
            "qwen.tiktoken: 'ab' is there twice, as ids 256 and 257");
  EXPECT_EQ(error_of("qwen.tiktoken", good.substr(good.find('\n') + 1)),
            "qwen.tiktoken: line 1 is not a token in base64 and rank 0");
  EXPECT_EQ(error_of("qwen.tiktoken", ""),
            "qwen.tiktoken: no token is the byte 0 alone, so texts with it have no ids");
  EXPECT_EQ(error_of("qwen.tiktoken", tiktoken_file({std::string(5000, 'a')})),
            "qwen.tiktoken: rank 256 has 5000 bytes; 1 to 4096 are possible");

  const auto tekken = [&](int size, int special, const std::string& pattern, const std::string& rest) {
    std::string vocab;
    const std::string lines = tiktoken_file({});
    for (size_t at = 0; at < lines.size();) {
      const size_t blank = lines.find(' ', at), end = lines.find('\n', at);
      vocab += fmt::format(R"({}{{"rank":{},"token_bytes":"{}","token_str":null}})", at == 0 ? "" : ",",
                           lines.substr(blank + 1, end - blank - 1), lines.substr(at, blank - at));
      at = end + 1;
    }
    return error_of("tekken.json",
                    fmt::format(R"({{"config":{{"pattern":"{}","num_vocab_tokens":256,"default_vocab_size":{},
                    "default_num_special_tokens":{},"version":"v3"}},"vocab":[{}]{}}})",
                                pattern, size, special, vocab, rest));
  };
  EXPECT_EQ(tekken(276, 20, ".", ""), "ok");
  EXPECT_EQ(tekken(276, 20, ".", R"(,"special_tokens":[{"rank":3,"token_str":"<x>","is_control":false}])"),
            "ok");
  EXPECT_EQ(tekken(277, 20, ".", ""),
            "tekken.json: config.default_vocab_size 277 does not fit 20 special tokens and a vocab of 256");
  EXPECT_NE(tekken(2000000000, 20, ".", "").find("default_vocab_size"), std::string::npos);
  EXPECT_NE(tekken(2000000000, 1999999999, ".", "").find("default_vocab_size"), std::string::npos);
  EXPECT_NE(tekken(10, 20, ".", "").find("default_vocab_size"), std::string::npos);
  EXPECT_EQ(tekken(276, 20, ".", R"(,"special_tokens":[{"rank":20,"token_str":"<x>"}])"),
            "tekken.json: special_tokens: rank 20 appears twice or is outside the 20 of the config");
  EXPECT_NE(tekken(276, 20, "(", "").find("tekken.json: pattern"), std::string::npos);
  EXPECT_NE(tekken(276, 20, std::string(5000, '.'), "").find("a pattern of 5000 bytes"), std::string::npos);
  EXPECT_NE(error_of("tekken.json", "{").find("tekken.json: "), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Files, TokenizerJson,
                         testing::Values("llama3.1", "qwen3", "gpt-oss-o200k", "gemma3", "llama2-spm",
                                         "deepseek-v4"));

struct GgufCase {
  const char* file;
  const char* pre;
};
class TokenizerGguf : public testing::TestWithParam<GgufCase> {};

TEST_P(TokenizerGguf, byte_level_vocabularies_give_the_oracle_ids) {
  OwnedVocab vocab = byte_level_vocab(cached_file(std::string(GetParam().file) + ".json"), GetParam().pre);
  const auto tokenizer = from(vocab);
  ASSERT_NE(tokenizer, nullptr);
  const std::vector<OracleRow> rows = oracle_rows(GetParam().file);
  expect_oracle_ids(*tokenizer, rows);
  for (const OracleRow& row : rows) {
    expect_streams(tokenizer, row);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, TokenizerGguf,
                         testing::Values(GgufCase{"llama3.1", "llama-bpe"}, GgufCase{"qwen3", "qwen2"},
                                         GgufCase{"gpt-oss-o200k", "gpt-4o"},
                                         GgufCase{"deepseek-v4", "deepseek-v3"}));

TEST(TokenizerSpm, llama2_from_scores_gives_the_oracle_ids) {
  OwnedVocab vocab = sentence_piece_vocab(cached_file("llama2-spm.json"));
  vocab.vocab.bos = 1;
  vocab.vocab.eos = 2;
  const auto tokenizer = from(vocab);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_TRUE(tokenizer->add_bos());  // the default of this kind
  EXPECT_EQ(tokenizer->strip_start(), 1);
  const std::vector<OracleRow> rows = oracle_rows("llama2-spm");
  expect_oracle_ids(*tokenizer, rows);
  for (const OracleRow& row : rows) {
    expect_streams(tokenizer, row);
    if (HasFatalFailure()) return;
  }
}

TEST(TokenizerSpm, gemma3_from_scores_gives_the_oracle_ids) {
  OwnedVocab vocab = sentence_piece_vocab(cached_file("gemma3.json"));
  vocab.vocab.add_space_prefix = false;
  const auto tokenizer = from(vocab);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->strip_start(), 0);
  // Two user-defined pieces of the file are runs of U+2581 itself; a GGUF file holds them as blanks, so text
  // with a literal U+2581 comes out as other ids (and as the same text).
  std::vector<OracleRow> rows = oracle_rows("gemma3");
  const size_t literal =
      std::erase_if(rows, [](const OracleRow& row) { return row.text.find("\u2581x") != std::string::npos; });
  EXPECT_EQ(literal, 1u);
  expect_oracle_ids(*tokenizer, rows);
}

// A vocabulary of a few pieces: "a", "b", "ab", "<0xE4>", "<0xB8>", "<0xAD>", blank, "<unk>", "<s>", "</s>",
// "[x]".
OwnedVocab small_spm() {
  OwnedVocab v;
  v.vocab.model = "llama";
  v.tokens = {"<unk>", "<s>", "</s>", "<0xE4>", "<0xB8>", "<0xAD>", "\u2581", "a", "b", "ab", "[x]"};
  v.types = {kUnknown, kControl, kControl, kByte,   kByte,       kByte,
             kNormal,  kNormal,  kNormal,  kNormal, kUserDefined};
  v.scores = {0, 0, 0, 0, 0, 0, -3, -2, -2, -1, 0};
  v.vocab.bos = 1;
  v.vocab.eos = 2;
  return v;
}

TEST(Detokenizer, byte_runs_become_characters_or_one_mark_for_each_byte) {
  OwnedVocab v = small_spm();
  const auto t = from(v);
  const Detokenizer::Options options{};
  EXPECT_EQ(detokenize(t, std::vector<int32_t>{3, 4, 5}, options), "中");
  EXPECT_EQ(detokenize(t, std::vector<int32_t>{3, 4, 7}, options), "\uFFFD\uFFFDa");
  EXPECT_EQ(detokenize(t, std::vector<int32_t>{3, 4}, options), "\uFFFD\uFFFD");
  EXPECT_EQ(detokenize(t, std::vector<int32_t>{5, 7}, options), "\uFFFDa");
  Detokenizer stream(t, options);
  std::string text;
  stream.push(3, text);
  stream.push(4, text);
  EXPECT_EQ(text, "");   // never half a character
  stream.push(1, text);  // a hidden control token does not end the run
  stream.push(5, text);
  EXPECT_EQ(text, "中");
}

// Id i is the byte i, written with the letters of byte-level BPE.
OwnedVocab all_bytes() {
  OwnedVocab v;
  v.vocab.model = "gpt2";
  v.vocab.pre = "gpt-2";
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const int letter = itself ? byte : next++;
    v.tokens.push_back(letter < 0x80 ? std::string(1, static_cast<char>(letter))
                                     : std::string{static_cast<char>(0xC0 | letter >> 6),
                                                   static_cast<char>(0x80 | (letter & 0x3F))});
    v.types.push_back(kNormal);
  }
  return v;
}

TEST(Detokenizer, every_kind_of_broken_utf8_decodes_as_the_library_decodes_it) {
  OwnedVocab v = all_bytes();
  const auto t = from(v);
  ASSERT_NE(t, nullptr);
  const int first[] = {0x41, 0x80, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC,
                       0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF};
  const int second[] = {0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xE2};
  const int later[] = {0x41, 0x80, 0xBF, 0xC3};
  for (const int a : first) {
    for (const int b : second) {
      for (const int c : later) {
        for (const int d : later) {
          const std::vector<int32_t> ids = {a, b, c, d};
          const auto whole = t->reference_decode(ids, false);
          ASSERT_TRUE(whole.ok());
          ASSERT_EQ(detokenize(t, ids, {}), *whole) << a << ' ' << b << ' ' << c << ' ' << d;
        }
      }
    }
  }
}

TEST(Detokenizer, the_first_blank_belongs_to_the_start_of_a_text_only) {
  OwnedVocab v = small_spm();
  const auto t = from(v);
  EXPECT_EQ(detokenize(t, std::vector<int32_t>{6, 7, 6, 8}, {.at_text_start = true}), "a b");
  EXPECT_EQ(detokenize(t, std::vector<int32_t>{6, 6, 7}, {.at_text_start = true}), " a");
  EXPECT_EQ(detokenize(t, std::vector<int32_t>{6, 7}, {.at_text_start = false}), " a");
  EXPECT_EQ(detokenize(t, std::vector<int32_t>{1, 6, 7}, {.at_text_start = true}), "a");
  EXPECT_EQ(detokenize(t, std::vector<int32_t>{1, 6, 7}, {.skip_control = false, .at_text_start = true}),
            "<s> a");
}

TEST(Detokenizer, control_tokens_hide_and_user_defined_ones_do_not) {
  OwnedVocab v = small_spm();
  const auto t = from(v);
  EXPECT_TRUE(t->is_control(1));
  EXPECT_TRUE(t->is_control(0));
  EXPECT_FALSE(t->is_control(10));
  EXPECT_EQ(detokenize(t, std::vector<int32_t>{1, 7, 10, 2}, {}), "a[x]");
  EXPECT_EQ(detokenize(t, std::vector<int32_t>{-1, 7, 999999}, {}), "a");  // ids of padding rows have no text
}

TEST(TokenizerSpm, flags_and_ids_follow_the_file) {
  OwnedVocab v = small_spm();
  auto t = from(v);
  EXPECT_EQ(t->vocab_size(), 11);
  EXPECT_EQ(t->prefix().size(), 1u);
  EXPECT_FALSE(t->add_eos());
  EXPECT_EQ(*t->encode("ab", Special::kParse), (std::vector<int32_t>{6, 9}));
  EXPECT_EQ(*t->encode("<s>", Special::kParse), (std::vector<int32_t>{1}));
  EXPECT_EQ(t->encode("<s>", Special::kPlain)->front(), 6);
  v.vocab.add_bos = false;
  v.vocab.add_eos = true;
  v.vocab.add_space_prefix = false;
  t = from(v);
  EXPECT_FALSE(t->add_bos());
  EXPECT_TRUE(t->add_eos());
  EXPECT_EQ(*t->encode("ab", Special::kParse), (std::vector<int32_t>{9}));
  ASSERT_EQ(t->stop_ids().size(), 1u);
  EXPECT_EQ(t->stop_ids()[0], 2);
  v.vocab.eot = 10;
  EXPECT_EQ(from(v)->eot(), 10);
}

TEST(TokenizerSpm, equal_neighbours_merge_by_score_not_by_place) {
  OwnedVocab v;
  v.vocab.model = "llama";
  v.vocab.add_space_prefix = false;
  v.tokens = {"<unk>", "a", "b", "c", "ab", "bc"};
  v.types = {kUnknown, kNormal, kNormal, kNormal, kNormal, kNormal};
  v.scores = {0, -9, -9, -9, -2, -1};
  EXPECT_EQ(*from(v)->encode("abc", Special::kParse), (std::vector<int32_t>{1, 5}));
  v.scores = {0, -9, -9, -9, -1, -2};
  EXPECT_EQ(*from(v)->encode("abc", Special::kParse), (std::vector<int32_t>{4, 3}));
}

// A byte-level vocabulary of these tokens; every token of several letters is the merge of its first ones and
// its last.
std::shared_ptr<const Tokenizer> byte_level(const std::string& pre, const std::vector<std::string>& letters,
                                            const std::vector<std::pair<std::string, std::string>>& merges) {
  OwnedVocab v;
  v.vocab.model = "gpt2";
  v.vocab.pre = pre;
  v.tokens = letters;
  for (const auto& [left, right] : merges) {
    v.tokens.push_back(left + right);
    v.merges.push_back(left + " " + right);
  }
  v.types.assign(v.tokens.size(), kNormal);
  const auto tokenizer = Tokenizer::from_gguf(v.view());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

std::string cut(const Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.encode(text, Special::kPlain);
  EXPECT_TRUE(ids.ok());
  std::string out;
  for (const int32_t id : *ids)
    out += (out.empty() ? "" : "|") + std::string(tokenizer.token_bytes(id));
  return out;
}

TEST(TokenizerPre, falcon_cuts_digits_in_threes_and_between_the_letters_of_bytes) {
  const std::vector<std::string> letters = {"1", "2",      "3",      "4",      "a",
                                            "!", "\u0120", "\u00D0", "\u00BC", "\u00BE"};
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"1", "2"},      {"12", "3"},          {"123", "4"},         {"a", "!"},      {"!", "!"},
      {"\u0120", "1"}, {"\u00D0", "\u00BC"}, {"\u00D0", "\u00BE"}, {"\u0120", "!"}, {"\u0120", "a"}};
  const auto falcon = byte_level("falcon", letters, merges), gpt2 = byte_level("gpt-2", letters, merges);
  ASSERT_TRUE(falcon && gpt2);
  EXPECT_EQ(cut(*gpt2, "1234"), "1234");
  EXPECT_EQ(cut(*falcon, "1234"), "123|4");
  EXPECT_EQ(cut(*gpt2, " 1"), " 1");
  EXPECT_EQ(cut(*falcon, " 1"), " |1");
  EXPECT_EQ(cut(*falcon, "a!!a a"), "a|!!|a| a");
  EXPECT_EQ(cut(*gpt2, " !"), " !");
  EXPECT_EQ(cut(*falcon, " !"), " |!");
  EXPECT_EQ(cut(*gpt2, "\u043C"), "\u043C");
  EXPECT_EQ(cut(*falcon, "\u043C"), "\xD0|\xBC");  // the letter of BC is a fraction
}

TEST(TokenizerPre, deepseek_llm_cuts_lines_cased_words_punctuation_and_digits) {
  const std::vector<std::string> letters = {"1",      "2",      "a",      "!",      "\u0120",
                                            "\u010A", "\u00D0", "\u00BC", "\u00D7", "\u0132"};
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"1", "2"},           {"a", "!"},      {"!", "!"},           {"\u0120", "1"},
      {"\u0120", "a"},      {"\u0120", "!"}, {"\u010A", "\u010A"}, {"\u00BC", "\u00D0"},
      {"\u00BC", "\u00D7"}, {"a", "a"},      {"\u0120", "\u0120"}};
  const auto deepseek = byte_level("deepseek-llm", letters, merges);
  ASSERT_TRUE(deepseek);
  EXPECT_EQ(cut(*deepseek, "12"), "1|2");
  EXPECT_EQ(cut(*deepseek, " 1"), " |1");
  EXPECT_EQ(cut(*deepseek, "aa a"), "aa| a");
  EXPECT_EQ(cut(*deepseek, "a!! !"), "a|!!| !");
  EXPECT_EQ(cut(*deepseek, "\n\n"), "\n|\n");
  EXPECT_EQ(cut(*deepseek, "a  "), "a|  ");
  EXPECT_EQ(cut(*deepseek, "\u043C\u043C"), "\xD0|\xBC\xD0|\xBC");   // cased letters: one word
  EXPECT_EQ(cut(*deepseek, "\u043C\u05D0"), "\xD0|\xBC|\xD7|\x90");  // a letter without case: not of the word
}

// Expected: the package `tokenizers` with the steps of the models' tokenizer.json.
TEST(TokenizerPre, chameleon_and_afmoe_cut_as_their_own_files_do) {
  const std::vector<std::string> letters = {"1", "2",      "a", "b", "\u0120", "'",
                                            "s", "\u010A", "!", "<", ">",      "\u0109"};
  const std::vector<std::pair<std::string, std::string>> merges = {{"1", "2"},
                                                                   {"12", "1"},
                                                                   {"121", "2"},
                                                                   {"\u0120", "1"},
                                                                   {"a", "b"},
                                                                   {"\u0120", "\u0120"},
                                                                   {"'", "s"},
                                                                   {"b", "'"},
                                                                   {"\u0120", "ab"},
                                                                   {"!", "!"},
                                                                   {"\u0120\u0120", "\u0120\u0120"},
                                                                   {"\u010A", "\u010A"},
                                                                   {"\u0120\u0120", "ab"},
                                                                   {"\u010A", "\u0109"},
                                                                   {"b", "!"},
                                                                   {"!", "a"}};
  const auto chameleon = byte_level("chameleon", letters, merges),
             afmoe = byte_level("afmoe", letters, merges);
  ASSERT_TRUE(chameleon && afmoe);
  const struct {
    const char *text, *chameleon, *afmoe;
  } kCuts[] = {
      {"1212", "1|2|1|2", "1|2|12"},
      {"1212121", "1|2|1|2|1|2|1", "1|2|12|121"},
      {" 1", " |1", " |1"},
      {"ab  ab", "ab|  |ab", "ab| | ab"},
      {"ab    ab", "ab|    |ab", "ab|  | | ab"},
      {"a'sb", "a|'|s|b", "a|'s|b"},
      {"!!", "!|!", "!!"},
      {"a!a", "a|!|a", "a|!a"},
      {"\n\n", "\n|\n", "\n\n"},
  };
  for (const auto& c : kCuts) {
    EXPECT_EQ(cut(*chameleon, c.text), c.chameleon);
    EXPECT_EQ(cut(*afmoe, c.text), c.afmoe);
  }
}

TEST(TokenizerPre, every_known_name_cuts_text_without_losing_any) {
  OwnedVocab v = all_bytes();
  v.vocab.pre = "brand-new";
  const std::string message = Tokenizer::from_gguf(v.view()).status().message();
  const size_t start = message.find("(known: ");
  ASSERT_NE(start, std::string::npos) << message;
  std::string names = message.substr(start + 8, message.size() - start - 9);
  int count = 0;
  for (size_t end; !names.empty(); names.erase(0, end == std::string::npos ? end : end + 2), ++count) {
    end = names.find(", ");
    const std::string name = names.substr(0, end);
    if (std::set<std::string>{"gemma4", "granite-embed-multi-311m", "sarvam-moe"}.contains(name))
      continue;  // their pieces are not of bytes: gguf_kinds_test.cc
    v.vocab.pre = name;
    const auto t = Tokenizer::from_gguf(v.view());
    ASSERT_TRUE(t.ok()) << name << ": " << t.status().message();
    const std::string text = "It's 12345 in caf\u00E9 \u4F60\u597D\uD55C  <a_b>!\n\n\tx";
    const auto ids = (*t)->encode(text, Special::kPlain);
    ASSERT_TRUE(ids.ok()) << name;
    EXPECT_EQ(detokenize(*t, *ids, {}), text) << name;
  }
  EXPECT_GT(count, 60);
}

TEST(TokenizerPre, names_of_one_family_differ_where_their_models_do) {
  const std::vector<std::string> letters = {"1", "2", "a", "b", "\u0120", "'", "s", "\u010A"};
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"1", "2"}, {"12", "1"}, {"121", "2"}, {"\u0120", "1"}, {"a", "b"},       {"\u0120", "\u0120"},
      {"'", "s"}, {"b", "'"},  {"a", "'"},   {"'s", "a"},     {"\u0120", "ab"}, {"ab", "\u0120ab"}};
  const auto cut_by = [&](const char* name, const char* text) {
    const auto t = byte_level(name, letters, merges);
    return t ? cut(*t, text) : "";
  };
  for (const char* name : {"exaone", "minerva-7b", "codeshell", "stablelm2", "hunyuan", "laguna", "youtu"})
    EXPECT_EQ(cut_by(name, "1212"), "1|2|1|2") << name;
  for (const char* name : {"falcon3", "lfm2", "minicpm5", "jais-2", "kimi-k2", "kanana2", "hunyuan-dense"})
    EXPECT_EQ(cut_by(name, "1212"), "121|2") << name;
  EXPECT_EQ(cut_by("tiny_aya", "1212"), "1|2|12");  // threes from the back
  EXPECT_EQ(cut_by("exaone4", "1212"), "12|12");
  EXPECT_EQ(cut_by("stablelm2", " 1"), " |1");
  EXPECT_EQ(cut_by("exaone-moe", "ab ab"), "ab ab");  // words go on over a blank
  EXPECT_EQ(cut_by("stablelm2", "ab ab"), "ab| ab");
  EXPECT_EQ(cut_by("ufakzeka", "ab'sa"), "ab|'sa");
  EXPECT_EQ(cut_by("stablelm2", "ab'sa"), "ab|'s|a");
}

TEST(TokenizerGguf, unknown_names_are_errors_that_name_them) {
  OwnedVocab v;
  v.vocab.model = "gpt2";
  v.tokens = {"a"};
  v.types = {kNormal};
  for (const char* pre : {"", "default", "brand-new", "LLAMA-BPE"}) {
    v.vocab.pre = pre;
    const auto result = Tokenizer::from_gguf(v.view());
    ASSERT_FALSE(result.ok()) << pre;
    EXPECT_EQ(result.status().code(), Code::kUnsupported);
    EXPECT_NE(result.status().message().find("tokenizer.ggml.pre"), std::string::npos);
    EXPECT_NE(result.status().message().find(pre), std::string::npos);
  }
  v.vocab.model = "rwkv";
  EXPECT_EQ(Tokenizer::from_gguf(v.view()).status().message(),
            "tokenizer.ggml.model 'rwkv' is not supported (known: gpt2, llama, gemma4, bert, t5)");
}

TEST(TokenizerGguf, broken_vocabularies_are_named_errors) {
  auto fails_with = [](OwnedVocab v, const std::string& part) {
    const auto result = Tokenizer::from_gguf(v.view());
    ASSERT_FALSE(result.ok()) << part;
    EXPECT_NE(result.status().message().find(part), std::string::npos) << result.status().message();
  };
  OwnedVocab v = small_spm();
  v.tokens[8] = "a";
  fails_with(v, "'a' appears twice, as ids 7 and 8");
  v = small_spm();
  v.types.pop_back();
  fails_with(v, "token_type has 10 entries for 11 tokens");
  v = small_spm();
  v.scores.clear();
  fails_with(v, "scores has 0 entries");
  v = small_spm();
  v.scores[3] = std::numeric_limits<float>::quiet_NaN();
  fails_with(v, "scores[3]");
  v.scores[3] = -std::numeric_limits<float>::infinity();
  fails_with(v, "scores[3] is -inf");
  v = small_spm();
  v.types[4] = 7;
  fails_with(v, "token_type[4] is 7");
  v.types[4] = -1;
  fails_with(v, "token_type[4] is -1");
  v = small_spm();
  v.tokens[7] = "\xff";
  fails_with(v, "tokens[7]: not UTF-8");
  v = small_spm();
  v.vocab.bos = 11;
  fails_with(v, "bos_token_id: id 11 is outside");
  v.vocab.bos = 1;
  v.vocab.eos = 4000000000u;
  fails_with(v, "eos_token_id");
  v = small_spm();
  v.vocab.bos = std::nullopt;
  v.vocab.add_bos = true;
  fails_with(v, "add_bos_token is set");
  v = small_spm();
  v.tokens[9] = std::string(100000, 'a');
  fails_with(v, "too long");
  fails_with({}, "tokens is empty");
  OwnedVocab b;
  b.vocab.model = "gpt2";
  b.vocab.pre = "gpt-2";
  b.tokens = {"a", "b", "ab"};
  b.types = {1, 1, 1};
  for (const char* merge : {"ab", "a ", " b", ""}) {
    b.merges = {"a b", merge};
    fails_with(b, "merges[1]");
  }
  b.merges = {"a c"};
  fails_with(b, "merges");
}

TEST(TokenizerJsonFile, broken_files_are_errors) {
  for (const char* json : {"", "{}", "[]", R"({"model":{"type":"BPE","vocab":{},"merges":[]}})", "\xff"}) {
    EXPECT_FALSE(Tokenizer::from_json(json, "").ok()) << json;
  }
}

TEST(TokenizerJsonFile, nothing_in_the_file_makes_ids_random_padded_or_cut) {
  const auto file = [](const std::string& head, const std::string& dropout) {
    return R"({"version":"1.0",)" + head +
           R"("added_tokens":[],"decoder":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},"model":{"type":"BPE","dropout":)" +
           dropout + R"(,"vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}})";
  };
  const auto random = Tokenizer::from_json(file("", "0.5"), "");
  ASSERT_FALSE(random.ok());
  EXPECT_NE(random.status().message().find("model.dropout"), std::string::npos) << random.status().message();
  const auto set = Tokenizer::from_json(
      file(R"("truncation":{"direction":"Right","max_length":1,"strategy":"LongestFirst","stride":0},)"
           R"("padding":{"strategy":{"Fixed":400},"direction":"Right","pad_to_multiple_of":null,"pad_id":0,)"
           R"("pad_type_id":0,"pad_token":"a"},)",
           "null"),
      "");
  ASSERT_TRUE(set.ok()) << set.status().message();
  EXPECT_EQ(*(*set)->encode("abab", Special::kPlain), (std::vector<int32_t>{2, 2}));
}

TEST(TokenizerJsonFile, config_names_bos_eos_and_overrides_the_flags) {
  const std::string json = cached_file("llama2-spm.json");
  const auto plain = *Tokenizer::from_json(json, "");
  EXPECT_TRUE(plain->add_bos());  // what tokenizer.json itself does
  EXPECT_EQ(plain->bos(), 1);
  EXPECT_EQ(plain->eos(), kNoToken);
  const auto set = *Tokenizer::from_json(
      json, R"({"bos_token":"<s>","eos_token":{"content":"</s>"},"add_bos_token":false})");
  EXPECT_FALSE(set->add_bos());
  EXPECT_EQ(set->bos(), 1);
  EXPECT_EQ(set->eos(), 2);
  const auto unknown = Tokenizer::from_json(json, R"({"eos_token":"<nope>"})");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.status().message().find("\"<nope>\""), std::string::npos);
}

TEST(Tokenizer, a_model_needs_a_row_for_every_id) {
  OwnedVocab v = small_spm();
  const auto tokenizer = from(v);
  EXPECT_TRUE(tokenizer->check_rows(11).ok());
  EXPECT_TRUE(tokenizer->check_rows(64).ok());  // padding
  const Status status = tokenizer->check_rows(10);
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_NE(status.message().find("11 tokens, but the model has 10 embedding rows"), std::string::npos);
  // Ids of padding rows give no text and disturb none.
  EXPECT_EQ(tokenizer->token_bytes(11), "");
  EXPECT_FALSE(tokenizer->is_control(11));
  Detokenizer stream(tokenizer, {});
  std::string text;
  for (const int32_t id : {7, 63, 7, -1})
    stream.push(id, text);
  stream.finish(text);
  EXPECT_EQ(text, std::string(tokenizer->token_bytes(7)) + std::string(tokenizer->token_bytes(7)));
}

TEST(Tokenizer, text_that_is_not_utf8_is_refused) {
  OwnedVocab v = small_spm();
  const auto result = from(v)->encode("a\xff", Special::kParse);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
}

TEST(Tokenizer, a_text_over_the_bound_is_refused_with_the_numbers) {
  OwnedVocab v = small_spm();
  const auto result = from(v)->encode(std::string(kMaxEncodedBytes + 1, 'a'), Special::kPlain);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(result.status().message(), "a text of 16777217 bytes; at most 16777216 are tokenized at once");
}

TEST(Tokenizer, threads_share_one_tokenizer) {
  const auto tokenizer = load("llama2-spm");
  ASSERT_NE(tokenizer, nullptr);
  const std::vector<OracleRow> rows = oracle_rows("llama2-spm");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] { expect_oracle_ids(*tokenizer, rows); });
  }
  for (auto& thread : threads)
    thread.join();
}

}  // namespace
}  // namespace invar::text
