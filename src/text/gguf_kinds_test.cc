// GGUF vocabularies of other kinds than byte-level BPE and SentencePiece BPE give the ids of the same
// tokenizer in tokenizer.json.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_fixtures.h"

namespace invar::text {
namespace {

std::shared_ptr<const Tokenizer> from(OwnedVocab& vocab) {
  auto result = Tokenizer::from_gguf(vocab.view());
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *result : nullptr;
}

TEST(TokenizerGguf, bert_gives_the_wordpiece_oracle_ids) {
  OwnedVocab vocab = word_piece_vocab(cached_file("minilm-wordpiece.json"));
  vocab.vocab.unknown = 100;
  vocab.vocab.cls = 101;
  vocab.vocab.sep = 102;
  const auto tokenizer = from(vocab);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(std::vector(tokenizer->prefix().begin(), tokenizer->prefix().end()), (std::vector<int32_t>{101}));
  EXPECT_EQ(std::vector(tokenizer->suffix().begin(), tokenizer->suffix().end()), (std::vector<int32_t>{102}));
  const std::vector<OracleRow> rows = oracle_rows("minilm-wordpiece");
  expect_oracle_ids(*tokenizer, rows);
  for (const OracleRow& row : rows) {
    expect_streams(tokenizer, row);
    if (HasFatalFailure()) return;
  }
}

TEST(TokenizerGguf, bert_lowers_text_unless_its_vocabulary_has_capitals) {
  OwnedVocab v;
  v.vocab.model = "bert";
  v.tokens = {"[PAD]", "[UNK]", "\u2581ab", "\u2581c", "d", "\u2581"};
  v.types = {kControl, kControl, kNormal, kNormal, kNormal, kUnused};
  EXPECT_EQ(*from(v)->encode("AB cd zz", Special::kPlain), (std::vector<int32_t>{2, 3, 4, 1}));
  v.tokens[2] = "\u2581Ab";
  EXPECT_EQ(*from(v)->encode("AB Ab cd", Special::kPlain), (std::vector<int32_t>{1, 2, 3, 4}));
  v.tokens[1] = "\u2581u";
  EXPECT_NE(Tokenizer::from_gguf(v.view()).status().message().find("unknown_token_id"), std::string::npos);
  v.vocab.unknown = 77;
  EXPECT_NE(Tokenizer::from_gguf(v.view()).status().message().find("unknown_token_id"), std::string::npos);
}

void expect_gemma3_ids(const char* model, const char* pre, bool add_bos) {
  OwnedVocab vocab = byte_level_vocab(cached_file("gemma3.json"), pre);
  vocab.vocab.model = model;
  vocab.vocab.bos = 2;
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    if (vocab.tokens[id] == "<unk>") vocab.types[id] = kUnknown;
    // As some converters write them; merges of line ends are then missing.
    if (!vocab.tokens[id].empty() && vocab.tokens[id].find_first_not_of('\n') == std::string::npos)
      vocab.types[id] = kNormal;
  }
  std::erase_if(vocab.merges, [](const std::string& merge) { return merge.find('\n') != std::string::npos; });
  const auto tokenizer = from(vocab);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->add_bos(), add_bos);
  EXPECT_EQ(tokenizer->strip_start(), 0);
  const std::vector<OracleRow> rows = oracle_rows("gemma3");
  expect_oracle_ids(*tokenizer, rows);
  for (const OracleRow& row : rows) {
    expect_streams(tokenizer, row);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(TokenizerGguf, gemma4_merges_over_text_give_the_gemma3_oracle_ids) {
  expect_gemma3_ids("gemma4", "", true);
}

TEST(TokenizerGguf, names_of_cuts_for_pieces_of_text_are_the_kind_gemma4) {
  for (const char* pre : {"sarvam-moe", "granite-embed-multi-311m"})
    expect_gemma3_ids("gpt2", pre, false);
}

TEST(TokenizerGguf, encoders_with_the_cut_of_gpt2_stand_between_marks) {
  OwnedVocab v;
  v.vocab.model = "gpt2";
  v.tokens = {"<s>", "</s>", "a", "b"};
  v.types = {kControl, kControl, kNormal, kNormal};
  v.vocab.bos = 0;
  v.vocab.sep = 1;
  const auto around = [&](const char* pre) {
    v.vocab.pre = pre;
    const auto t = from(v);
    std::vector<int32_t> ids(t->prefix().begin(), t->prefix().end());
    ids.insert(ids.end(), t->suffix().begin(), t->suffix().end());
    return ids;
  };
  for (const char* pre : {"roberta-bpe", "jina-v1-en", "jina-v2-code"})
    EXPECT_EQ(around(pre), (std::vector<int32_t>{0, 1})) << pre;
  EXPECT_EQ(around("gpt-2"), std::vector<int32_t>());
  v.vocab.add_sep = false;
  EXPECT_EQ(around("roberta-bpe"), (std::vector<int32_t>{0}));
  // As newer converters write it, whose add_sep is about what stands between two texts.
  v.vocab.add_eos = true;
  v.vocab.eos = 1;
  EXPECT_EQ(around("roberta-bpe"), (std::vector<int32_t>{0, 1}));
}

TEST(TokenizerUnigram, file_and_gguf_vocabularies_give_the_reference_ids) {
  const std::string json = test_data("tokenizers/unigram.json");
  const auto file = Tokenizer::from_json(json, "");
  ASSERT_TRUE(file.ok()) << file.status().message();
  OwnedVocab vocab = unigram_vocab(json);
  vocab.vocab.bos = 0;
  vocab.vocab.eos = 2;
  vocab.vocab.add_bos = true;
  const auto gguf = from(vocab);
  ASSERT_NE(gguf, nullptr);
  const boost::json::value inputs = boost::json::parse(test_data("tokenizers/unigram.ids.json"));
  for (const auto& input : inputs.as_array()) {
    const std::string text = as_string(input.at("text"));
    for (const auto& tokenizer : {*file, gguf}) {
      std::vector<int32_t> ids(tokenizer->prefix().begin(), tokenizer->prefix().end());
      const auto inner = *tokenizer->encode(text, Special::kPlain);
      ids.insert(ids.end(), inner.begin(), inner.end());
      ids.insert(ids.end(), tokenizer->suffix().begin(), tokenizer->suffix().end());
      EXPECT_EQ(ids, id_list(input.at("ids"))) << text;
    }
  }
  int compared = 0;
  for (const OracleRow& row : oracle_rows("qwen3")) {
    // The GGUF vocabulary has no table for NFKC, which the file asks for, and keeps runs of blanks.
    const bool same = std::all_of(row.text.begin(), row.text.end(), [](char c) { return c > 0; });
    if (!same || row.text.find("  ") != std::string::npos) continue;
    EXPECT_EQ(*gguf->encode(row.text, Special::kParse), *(*file)->encode(row.text, Special::kParse))
        << row.text;
    ++compared;
  }
  EXPECT_GT(compared, 80);
}

TEST(TokenizerUnigram, text_never_becomes_a_special_token_by_its_score) {
  const std::string json = test_data("tokenizers/unigram.json");
  const auto file = Tokenizer::from_json(json, "");
  ASSERT_TRUE(file.ok()) << file.status().message();
  OwnedVocab vocab = unigram_vocab(json);
  for (const auto& tokenizer : {*file, from(vocab)}) {
    ASSERT_NE(tokenizer, nullptr);
    const auto parsed = *tokenizer->encode("a</s><pad>", Special::kParse);
    EXPECT_EQ(std::vector(parsed.end() - 2, parsed.end()), (std::vector<int32_t>{2, 1}));
    const auto plain = *tokenizer->encode("a</s><pad><s>", Special::kPlain);
    for (const int32_t id : plain)
      EXPECT_TRUE(!tokenizer->is_control(id) || id == 3) << id;  // 3: letters in no piece
  }
}

TEST(TokenizerUnigram, blanks_follow_the_file) {
  OwnedVocab vocab = unigram_vocab(test_data("tokenizers/unigram.json"));
  vocab.vocab.remove_extra_whitespaces = true;
  const auto tokenizer = from(vocab);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(*tokenizer->encode("  the  the ", Special::kPlain),
            *tokenizer->encode("the the", Special::kPlain));
  EXPECT_EQ(detokenize(tokenizer, *tokenizer->encode("the the", Special::kPlain), {.at_text_start = true}),
            "the the");
  vocab.vocab.charsmap = "\xff\xff\xff\xff\x00";
  EXPECT_NE(Tokenizer::from_gguf(vocab.view()).status().message().find("precompiled_charsmap"),
            std::string::npos);
  vocab.vocab.charsmap = "";
  vocab.tokens[9] = std::string(2000, 'x');
  EXPECT_NE(Tokenizer::from_gguf(vocab.view()).status().message().find("tokens[9] has 2000 bytes"),
            std::string::npos);
}

}  // namespace
}  // namespace invar::text
