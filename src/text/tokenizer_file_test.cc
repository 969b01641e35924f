// tokenizer.json files that ask for too much or contradict themselves: each a named error, at no great cost.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include <fmt/format.h>
#include "text/tokenizer.h"

namespace invar::text {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::Eq;
using testing::HasSubstr;

struct File {
  std::string normalizer = "null", pre_tokenizer = "null", post_processor = "null", added = "[]";
  std::string vocab = R"({"a":0,"b":1,"ab":2})", merges = R"(["a b"])";

  std::string json() const {
    return fmt::format(
        R"({{"version":"1.0","added_tokens":{},"normalizer":{},"pre_tokenizer":{},"post_processor":{},
            "decoder":{{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}},
            "model":{{"type":"BPE","vocab":{},"merges":{}}}}})",
        added, normalizer, pre_tokenizer, post_processor, vocab, merges);
  }
};

std::string error_of(const File& file) {
  const auto tokenizer = Tokenizer::from_json(file.json(), "");
  return tokenizer.ok() ? "ok" : tokenizer.status().message();
}

std::string sequence(const char* list, const std::string& step, int count) {
  std::string steps = step;
  for (int i = 1; i < count; ++i)
    steps += "," + step;
  return fmt::format(R"({{"type":"Sequence","{}":[{}]}})", list, steps);
}

// The charsmap that starts with this table size, as base64.
std::string charsmap(const std::string& base64) {
  return fmt::format(R"({{"type":"Precompiled","precompiled_charsmap":"{}"}})", base64);
}

TEST(TokenizerFile, a_normalizer_that_multiplies_text_is_refused) {
  const std::string doubling = R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";
  EXPECT_EQ(error_of({.normalizer = sequence("normalizers", doubling, 3)}), "ok");
  EXPECT_THAT(error_of({.normalizer = sequence("normalizers", doubling, 31)}),
              HasSubstr("tokenizer.json: normalizer: makes a text more than 16 times as long"));
  EXPECT_THAT(error_of({.normalizer = sequence("normalizers", doubling, 33)}),
              HasSubstr("tokenizer.json: normalizer: more than 32 steps"));
  // Steps that leave short texts alone show it on long ones.
  const File quiet{.normalizer = sequence(
                       "normalizers", R"({"type":"Replace","pattern":{"String":"b"},"content":"bbbb"})", 8)};
  const auto tokenizer = Tokenizer::from_json(quiet.json(), "");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_TRUE((*tokenizer)->encode(std::string(1000, 'a'), Special::kPlain).ok());
  const auto grown = (*tokenizer)->encode(std::string(100000, 'b'), Special::kPlain);
  ASSERT_FALSE(grown.ok());
  EXPECT_THAT(grown.status().message(), HasSubstr("normalizer: makes a text more than 16 times"));
  // Patterns may match between all characters.
  const std::string everywhere = fmt::format(
      R"({{"type":"Replace","pattern":{{"Regex":"x*"}},"content":"{}"}})", std::string(100000, 'x'));
  EXPECT_THAT(error_of({.normalizer = everywhere}), HasSubstr("16 times"));
  EXPECT_THAT(error_of({.normalizer = fmt::format(R"({{"type":"Prepend","prepend":"{}"}})",
                                                  std::string(1000000, 'x'))}),
              HasSubstr("16 times"));
  // Added tokens pass through it while the file is read.
  EXPECT_THAT(error_of({.normalizer = sequence("normalizers", doubling, 10),
                        .added = fmt::format(R"([{{"id":3,"content":"{}","single_word":false,"lstrip":false,
                            "rstrip":false,"normalized":true,"special":false}}])",
                                             std::string(10000, 'a'))}),
              HasSubstr("16 times"));
}

TEST(TokenizerFile, an_empty_pattern_is_refused_by_name) {
  for (const char* kind : {"String", "Regex"}) {
    const std::string empty =
        fmt::format(R"({{"type":"Replace","pattern":{{"{}":""}},"content":"x"}})", kind);
    for (const std::string& normalizer : {empty, sequence("normalizers", empty, 2)})
      EXPECT_EQ(error_of({.normalizer = normalizer}),
                "tokenizer.json: normalizer: Replace: the pattern is empty");
  }
  // No panic of the library is shown for those that match nothing here and there.
  const std::string anywhere =
      error_of({.normalizer = R"({"type":"Replace","pattern":{"Regex":"(?=b)|x*"},"content":"y"})"});
  EXPECT_THAT(anywhere, AnyOf(Eq("ok"), HasSubstr("tokenizer.json: normalizer: ")));
}

TEST(TokenizerFile, a_broken_or_giant_charsmap_is_refused_before_memory_is_reserved_for_it) {
  // A table of almost 4 GiB in a map of 9 bytes; no base64; less than a size; no table.
  EXPECT_THAT(error_of({.normalizer = charsmap("/P///wAAAAAA")}),
              HasSubstr("tokenizer.json: normalizer: precompiled_charsmap: the size of its table"));
  EXPECT_THAT(error_of({.normalizer = charsmap("????")}), HasSubstr("not base64"));
  EXPECT_THAT(error_of({.normalizer = charsmap("AAA")}), HasSubstr("precompiled_charsmap"));
  EXPECT_THAT(error_of({.normalizer = charsmap("AAAAAAAA")}), HasSubstr("charsmap is broken"));
  EXPECT_THAT(error_of({.normalizer = charsmap("AAAAAAA?")}), HasSubstr("not base64"));
  EXPECT_THAT(error_of({.normalizer = charsmap("AAAAAAAA?AAA")}), HasSubstr("normalizer: not readable"));
  EXPECT_THAT(error_of({.normalizer = charsmap(std::string(5 << 20, 'A'))}), HasSubstr("limit is 4194304"));
  EXPECT_THAT(error_of({.normalizer = sequence("normalizers", charsmap("/P///wAAAAAA"), 2)}),
              HasSubstr("the size of its table"));
}

TEST(TokenizerFile, pipelines_of_absurd_length_are_refused) {
  const std::string bytes =
      R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false})";
  EXPECT_EQ(error_of({.pre_tokenizer = sequence("pretokenizers", bytes, 1)}), "ok");
  EXPECT_THAT(error_of({.pre_tokenizer = sequence("pretokenizers", bytes, 2)}),
              HasSubstr("tokenizer.json: pre_tokenizer: more than 32 steps, or ByteLevel"));
  EXPECT_THAT(error_of({.pre_tokenizer = sequence("pretokenizers", R"({"type":"WhitespaceSplit"})", 33)}),
              HasSubstr("pre_tokenizer: more than 32 steps"));
  EXPECT_THAT(error_of({.pre_tokenizer = sequence("pretokenizers", R"({"type":"WhitespaceSplit"})", 5000)}),
              HasSubstr("pre_tokenizer: more than 256 objects"));
  EXPECT_THAT(error_of({.post_processor = sequence("processors", bytes, 5000)}),
              HasSubstr("post_processor: more than 256 objects"));
  EXPECT_THAT(
      error_of({.pre_tokenizer = fmt::format(
                    R"({{"type":"Split","pattern":{{"Regex":"{}"}},"behavior":"Isolated","invert":false}})",
                    std::string(100000, '('))}),
      HasSubstr("pre_tokenizer: a pattern of 100000 bytes"));
  EXPECT_THAT(
      error_of({.pre_tokenizer = fmt::format(
                    R"({{"type":"Split","pattern":{{"Regex":"{}"}},"behavior":"Isolated","invert":false}})",
                    std::string(4000, '('))}),
      HasSubstr("pre_tokenizer"));
  EXPECT_NE(error_of({.normalizer = std::string(100000, '[')}), "ok");
  EXPECT_THAT(error_of({.merges = std::string(200 << 20, ' ') + "[]"}), HasSubstr("the limit is 134217728"));
}

TEST(TokenizerFile, unknown_kinds_and_costly_pieces_are_refused_by_name) {
  const auto error_with_model = [](const std::string& model) {
    const auto t = Tokenizer::from_json(R"({"version":"1.0","added_tokens":[],"model":)" + model + "}", "");
    return t.ok() ? "ok" : t.status().message();
  };
  EXPECT_THAT(error_with_model(R"({"type":"Morphemes","vocab":{}})"),
              HasSubstr("tokenizer.json: model.type 'Morphemes' is not supported (known: BPE, WordPiece, "
                        "Unigram, WordLevel)"));
  EXPECT_THAT(error_with_model(R"({"type":"WordPiece","unk_token":"u","continuing_subword_prefix":"##",
                                   "max_input_chars_per_word":1000000,"vocab":{"u":0}})"),
              HasSubstr("max_input_chars_per_word is larger than 256"));
  EXPECT_THAT(
      error_with_model(fmt::format(R"({{"type":"Unigram","unk_id":0,"vocab":[["u",0.0],["{}",-1.0]]}})",
                                   std::string(2000, 'a'))),
      HasSubstr("model.vocab[1]: a piece of 2000 bytes, the limit is 1024"));
}

TEST(TokenizerFile, ids_and_tokens_are_there_once) {
  EXPECT_THAT(error_of({.vocab = R"({"a":0,"b":0,"ab":2})"}),
              HasSubstr("tokenizer.json: model.vocab: id 0 appears twice"));
  EXPECT_THAT(error_of({.vocab = R"({"a":0,"b":1,"ab":2,"a":3})"}),
              HasSubstr("model.vocab: 'a' appears twice"));
  EXPECT_THAT(error_of({.vocab = R"({"a":0,"b":-1,"ab":2})"}), HasSubstr("tokenizer.json: "));
  EXPECT_THAT(error_of({.vocab = R"({"a":0,"b":1,"ab":4294967295})"}), HasSubstr("no sane vocabulary"));
  const auto added = [](const std::string& tokens) {
    std::string list;
    for (size_t at = 0; at < tokens.size(); at += 4) {  // "3<s>": id and three letters of text
      list += fmt::format(R"({}{{"id":{},"content":"{}","single_word":false,"lstrip":false,"rstrip":false,
                          "normalized":false,"special":true}})",
                          at == 0 ? "" : ",", tokens[at], tokens.substr(at + 1, 3));
    }
    return error_of({.added = "[" + list + "]"});
  };
  EXPECT_EQ(added("3<s>4<t>"), "ok");
  EXPECT_THAT(added("3<s>3<t>"),
              HasSubstr("tokenizer.json: added_tokens: id 3 or its text '<t>' appears twice"));
  EXPECT_THAT(added("3<s>4<s>"), HasSubstr("appears twice"));
  EXPECT_THAT(added("0<s>"), HasSubstr("added_tokens: '<s>' has id 0, but the vocabulary gives it 3"));
  EXPECT_THAT(added("5<s>"), HasSubstr("has id 5"));
}

TEST(TokenizerFile, texts_of_the_file_are_short_and_harmless_in_errors) {
  const std::string message =
      error_of({.vocab = fmt::format(R"({{"{0}":0,"{0}":1}})", "\\u001b[2J" + std::string(100000, 'x'))});
  EXPECT_THAT(message, AllOf(HasSubstr("\\x1b[2J"), HasSubstr("appears twice")));
  EXPECT_LT(message.size(), 600u);
}

}  // namespace
}  // namespace invar::text
