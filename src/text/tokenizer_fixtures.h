#pragma once
// For tests: tokenizer oracles, and GGUF-style vocabularies made from a tokenizer.json, as converters make
// them.

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include "text/detokenizer.h"
#include "text/gguf_vocab.h"
#include "text/test_files.h"
#include "text/tokenizer.h"

namespace invar::text {

struct OracleRow {
  std::string text;
  std::vector<int32_t> ids;        // text of special tokens parsed
  std::vector<int32_t> plain_ids;  // ... treated as text
  std::string decoded;
};

inline std::vector<int32_t> id_list(const boost::json::value& v) {
  std::vector<int32_t> ids;
  for (const auto& id : v.as_array())
    ids.push_back(id.to_number<int32_t>());
  return ids;
}

inline std::vector<OracleRow> oracle_rows(const std::string& name) {
  const boost::json::value corpus = boost::json::parse(test_data("tokenizers/corpus.json"));
  const boost::json::value ids = boost::json::parse(test_data("tokenizers/" + name + ".ids.json"));
  const boost::json::array& texts = corpus.as_array();
  EXPECT_EQ(texts.size(), 300u);
  EXPECT_EQ(ids.as_array().size(), texts.size());
  std::vector<OracleRow> rows;
  for (size_t i = 0; i < std::min(texts.size(), ids.as_array().size()); ++i) {
    const boost::json::object& row = ids.as_array()[i].as_object();
    OracleRow r;
    r.text = as_string(texts[i].at("text"));
    r.ids = id_list(row.at("ids"));
    r.plain_ids = row.contains("ids_no_special_parse") ? id_list(row.at("ids_no_special_parse")) : r.ids;
    r.decoded = row.contains("decoded") ? as_string(row.at("decoded")) : r.text;
    rows.push_back(std::move(r));
  }
  return rows;
}

inline void expect_oracle_ids(const Tokenizer& tokenizer, const std::vector<OracleRow>& rows) {
  int failures = 0;
  for (const OracleRow& row : rows) {
    const auto parsed = tokenizer.encode(row.text, Special::kParse);
    const auto plain = tokenizer.encode(row.text, Special::kPlain);
    ASSERT_TRUE(parsed.ok() && plain.ok());
    EXPECT_EQ(*parsed, row.ids) << row.text;
    EXPECT_EQ(*plain, row.plain_ids) << row.text;
    failures += *parsed != row.ids || *plain != row.plain_ids;
    ASSERT_LT(failures, 5) << "and more";
  }
}

inline bool is_utf8(std::string_view s) {
  for (size_t i = 0; i < s.size();) {
    const uint8_t c = s[i];
    const size_t n = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    if (c >= 0x80 && c < 0xC2) return false;
    if (i + n > s.size()) return false;
    for (size_t k = 1; k < n; ++k) {
      if ((s[i + k] & 0xC0) != 0x80) return false;
    }
    i += n;
  }
  return true;
}

// The stream after each token, and what finishing there would give.
inline void expect_streams(const std::shared_ptr<const Tokenizer>& tokenizer, const OracleRow& row) {
  Detokenizer stream(tokenizer, {.skip_control = false, .at_text_start = true});
  std::string text;
  for (size_t k = 0; k < row.ids.size(); ++k) {
    stream.push(row.ids[k], text);
    ASSERT_TRUE(is_utf8(text)) << row.text;
    Detokenizer ends_here = stream;
    std::string cut = text;
    ends_here.finish(cut);
    ASSERT_TRUE(is_utf8(cut)) << row.text;
    // The library gives up a whole byte-fallback run when one byte of it is wrong; a stream has already shown
    // the rest.
    if (tokenizer->has_byte_fallback() && cut != text) continue;
    const auto whole = tokenizer->reference_decode(std::span(row.ids).first(k + 1), false);
    ASSERT_TRUE(whole.ok());
    ASSERT_EQ(cut, *whole) << row.text << ", " << k + 1 << " tokens";
  }
  stream.finish(text);
  EXPECT_EQ(text, row.decoded);
}

// Owns what a GgufVocab points to.
struct OwnedVocab {
  std::vector<std::string> tokens, merges;
  std::vector<int32_t> types;
  std::vector<float> scores;
  GgufVocab vocab;

  const GgufVocab& view() {
    vocab.tokens.assign(tokens.begin(), tokens.end());
    vocab.merges.assign(merges.begin(), merges.end());
    vocab.token_types = types;
    vocab.scores = scores;
    return vocab;
  }
};

// tokenizer.ggml.model = gpt2.
inline OwnedVocab byte_level_vocab(const std::string& tokenizer_json, std::string_view pre) {
  const boost::json::value root = boost::json::parse(tokenizer_json);
  const boost::json::object& model = root.at("model").as_object();
  OwnedVocab out;
  out.vocab.model = "gpt2";
  out.vocab.pre = pre;
  auto put = [&](size_t id, std::string text, int32_t type) {
    for (size_t i = out.tokens.size(); i <= id; ++i) {
      out.tokens.push_back(fmt::format("[PAD{}]", i));
      out.types.push_back(kUnused);
    }
    out.tokens[id] = std::move(text);
    out.types[id] = type;
  };
  for (const auto& [token, id] : model.at("vocab").as_object())
    put(id.to_number<size_t>(), std::string(token), kNormal);
  for (const auto& added : root.at("added_tokens").as_array()) {
    put(added.at("id").to_number<size_t>(), as_string(added.at("content")),
        added.at("special").as_bool() ? kControl : kUserDefined);
  }
  for (const auto& merge : model.at("merges").as_array()) {
    out.merges.push_back(merge.is_string() ? as_string(merge)
                                           : as_string(merge.at(0)) + " " + as_string(merge.at(1)));
  }
  return out;
}

// tokenizer.ggml.model = llama. tokenizer.json has merges instead of scores; a piece's score is minus the
// rank of the first merge that makes it, which orders the pieces as the original scores do.
inline OwnedVocab sentence_piece_vocab(const std::string& tokenizer_json) {
  OwnedVocab out = byte_level_vocab(tokenizer_json, "");
  out.vocab.model = "llama";
  std::map<std::string, size_t> rank;
  for (size_t i = 0; i < out.merges.size(); ++i) {
    // The space between the two pieces: no piece of these vocabularies holds one itself.
    std::string piece = out.merges[i];
    piece.erase(piece.find(' '), 1);
    rank.emplace(std::move(piece), i);
  }
  out.merges.clear();
  for (size_t id = 0; id < out.tokens.size(); ++id) {
    std::string& token = out.tokens[id];
    const auto found = rank.find(token);
    out.scores.push_back(found == rank.end() ? -1e9f : -static_cast<float>(found->second));
    if (token == "<unk>") out.types[id] = kUnknown;
    if (token.size() == 6 && token.starts_with("<0x")) out.types[id] = kByte;
    if (out.types[id] == kUserDefined) {  // converters write the blank of user-defined pieces as it is
      for (size_t at; (at = token.find("\u2581")) != std::string::npos;)
        token.replace(at, 3, " ");
    }
  }
  return out;
}

// tokenizer.ggml.model = bert: word starts are marked in place of the pieces that go on.
inline OwnedVocab word_piece_vocab(const std::string& tokenizer_json) {
  const boost::json::value root = boost::json::parse(tokenizer_json);
  OwnedVocab out;
  out.vocab.model = "bert";
  const boost::json::object& vocab = root.at("model").at("vocab").as_object();
  out.tokens.resize(vocab.size());
  out.types.assign(vocab.size(), kNormal);
  for (const auto& [token, id] : vocab) {
    std::string text(token);
    if (text.starts_with("##")) {
      text.erase(0, 2);
    } else if (text.size() < 3 || !text.starts_with('[') || !text.ends_with(']')) {
      text.insert(0, "\u2581");
    }
    out.tokens[id.to_number<size_t>()] = text;
  }
  for (const auto& added : root.at("added_tokens").as_array())
    out.types[added.at("id").to_number<size_t>()] = kControl;
  return out;
}

// tokenizer.ggml.model = t5.
inline OwnedVocab unigram_vocab(const std::string& tokenizer_json) {
  const boost::json::value root = boost::json::parse(tokenizer_json);
  OwnedVocab out;
  out.vocab.model = "t5";
  for (const auto& piece : root.at("model").at("vocab").as_array()) {
    out.tokens.push_back(as_string(piece.at(0)));
    out.scores.push_back(piece.at(1).to_number<float>());
    out.types.push_back(kNormal);
  }
  for (const auto& added : root.at("added_tokens").as_array()) {
    const size_t id = added.at("id").to_number<size_t>();
    if (id >= out.tokens.size()) {
      out.tokens.resize(id + 1, as_string(added.at("content")));
      out.scores.resize(id + 1, 0.0f);
      out.types.resize(id + 1, kControl);
    }
    out.types[id] = kControl;
  }
  const size_t unknown = root.at("model").at("unk_id").to_number<size_t>();
  out.types[unknown] = kUnknown;
  out.vocab.unknown = static_cast<uint32_t>(unknown);
  return out;
}

}  // namespace invar::text
