#pragma once
// For tests of streams: byte-level vocabularies of chosen pieces, and what an answer must come to.

#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "text/code_points.h"
#include "text/detokenizer.h"
#include "text/tokenizer_fixtures.h"

namespace invar::text {

// Bytes as the letters that byte-level BPE writes them with.
inline std::string byte_letters(std::string_view bytes) {
  static const auto* const kLetters = [] {
    auto* letters = new std::vector<std::string>(256);
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      append_utf8(itself ? byte : next++, (*letters)[byte]);
    }
    return letters;
  }();
  std::string out;
  for (const char c : bytes)
    out += (*kLetters)[static_cast<uint8_t>(c)];
  return out;
}

// Ids 0-255 are the bytes, the pieces follow, the last id is the control token <|end|>.
inline std::shared_ptr<const Tokenizer> byte_level_tokenizer(const std::vector<std::string>& pieces) {
  OwnedVocab v;
  v.vocab.model = "gpt2";
  v.vocab.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte)
    v.tokens.push_back(byte_letters(std::string(1, static_cast<char>(byte))));
  for (const std::string& piece : pieces)
    v.tokens.push_back(byte_letters(piece));
  v.types.assign(v.tokens.size(), kNormal);
  v.tokens.push_back("<|end|>");
  v.types.push_back(kControl);
  auto tokenizer = Tokenizer::from_gguf(v.view());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return *tokenizer;
}

// Pieces of an SPM vocabulary with byte fallback: <unk> <s> </s>, the bytes (3-258), then these.
inline std::shared_ptr<const Tokenizer> fallback_tokenizer(const std::vector<std::string>& pieces) {
  OwnedVocab v;
  v.vocab.model = "llama";
  v.tokens = {"<unk>", "<s>", "</s>"};
  v.types = {kUnknown, kControl, kControl};
  for (int byte = 0; byte < 256; ++byte) {
    v.tokens.push_back(fmt::format("<0x{:02X}>", byte));
    v.types.push_back(kByte);
  }
  for (const std::string& piece : pieces) {
    v.tokens.push_back(piece);
    v.types.push_back(kNormal);
  }
  v.scores.assign(v.tokens.size(), -1);
  auto tokenizer = Tokenizer::from_gguf(v.view());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return *tokenizer;
}

// The text before the stop string whose end comes first, of those with one end the longest.
struct Cut {
  std::string text;
  int32_t stop = -1;
};
inline Cut cut_at_stop(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    int32_t best = -1;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (!std::string_view(text).substr(0, end).ends_with(stops[i])) continue;
      if (best < 0 || stops[i].size() > stops[static_cast<size_t>(best)].size())
        best = static_cast<int32_t>(i);
    }
    if (best >= 0) return {text.substr(0, end - stops[static_cast<size_t>(best)].size()), best};
  }
  return {text, -1};
}

// Vocabularies, tokens and stop strings that meet often: few letters, some of several bytes, broken ones too.
inline std::string random_text(std::mt19937& random, size_t longest) {
  static const std::vector<std::string> kLetters = {"a", "b", " ", "\u00E9", "\u20AC", "\U0001F44D"};
  std::string s;
  for (size_t i = 0, n = 1 + random() % longest; i < n; ++i)
    s += kLetters[random() % kLetters.size()];
  return s;
}

struct StreamWorld {
  std::shared_ptr<const Tokenizer> tokenizer;
  bool fallback;
  size_t pieces;
};
inline std::vector<StreamWorld> random_worlds(std::mt19937& random) {
  std::vector<StreamWorld> worlds;
  for (int w = 0; w < 40; ++w) {
    const bool fallback = w % 2 == 1;
    std::vector<std::string> pieces;
    for (int i = 0; i < 12; ++i) {
      std::string piece = random_text(random, 4);
      if (fallback) {
        for (size_t at; (at = piece.find(' ')) != std::string::npos;)
          piece.replace(at, 1, "\u2581");
      } else {
        piece = piece.substr(random() % piece.size());  // may start inside a character, or end there
        if (random() % 2) piece.resize(1 + random() % piece.size());
      }
      const bool known = std::find(pieces.begin(), pieces.end(), piece) != pieces.end();
      if (!known && (fallback || piece.size() > 1)) pieces.push_back(piece);
    }
    worlds.push_back(
        {fallback ? fallback_tokenizer(pieces) : byte_level_tokenizer(pieces), fallback, pieces.size()});
  }
  return worlds;
}

struct StreamCase {
  std::shared_ptr<const Tokenizer> tokenizer;
  bool fallback;
  std::vector<int32_t> ids;
  std::vector<std::string> stops;
};
inline StreamCase random_case(std::mt19937& random, const StreamWorld& world) {
  StreamCase c{.tokenizer = world.tokenizer, .fallback = world.fallback, .ids = {}, .stops = {}};
  const size_t first_piece = world.fallback ? 259 : 256, first_byte = world.fallback ? 3 : 0;
  for (size_t i = 0, n = random() % 40; i < n; ++i) {
    const auto kind = random() % 8;
    if (kind < 4) {
      c.ids.push_back(static_cast<int32_t>(first_piece + random() % world.pieces));
    } else if (kind == 4) {
      c.ids.push_back(world.fallback ? 2 : c.tokenizer->vocab_size() - 1);  // a control token
    } else if (kind == 5 && random() % 3 == 0) {
      c.ids.push_back(c.tokenizer->vocab_size() + 3);  // no such id
    } else {
      const std::string bytes = random_text(random, 1);
      const size_t length = random() % 4 == 0 ? 1 + random() % bytes.size() : bytes.size();
      for (size_t k = 0; k < length; ++k)
        c.ids.push_back(static_cast<int32_t>(first_byte + static_cast<uint8_t>(bytes[k])));
    }
  }
  for (size_t i = 0, n = random() % 5; i < n; ++i)
    c.stops.push_back(random() % 12 == 0 ? std::string("\uFFFD") : random_text(random, 4));
  return c;
}

}  // namespace invar::text
