#pragma once
// The tokenizer part of a GGUF file as plain views, so that text/ needs no GGUF reader. The caller (cli)
// fills it from the metadata keys named here and keeps the file mapped while Tokenizer::from_gguf runs;
// nothing is kept afterwards.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace invar::text {

// tokenizer.ggml.token_type
enum TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct GgufVocab {
  // tokenizer.ggml.model: gpt2 (byte-level BPE), llama (SentencePiece BPE), gemma4 (BPE over text), bert
  // (WordPiece), t5 (Unigram)
  std::string_view model;
  std::string_view pre;                  // tokenizer.ggml.pre, "" when absent
  std::vector<std::string_view> tokens;  // tokenizer.ggml.tokens, by id
  std::span<const int32_t> token_types;  // tokenizer.ggml.token_type, empty = all normal
  std::span<const float> scores;         // tokenizer.ggml.scores, needed by llama and t5
  std::vector<std::string_view> merges;  // tokenizer.ggml.merges, needed by gpt2 and gemma4

  std::optional<bool> add_bos;           // tokenizer.ggml.add_bos_token
  std::optional<bool> add_eos;           // tokenizer.ggml.add_eos_token
  std::optional<bool> add_space_prefix;  // tokenizer.ggml.add_space_prefix
  std::optional<uint32_t> bos;           // tokenizer.ggml.bos_token_id
  std::optional<uint32_t> eos;           // tokenizer.ggml.eos_token_id
  std::optional<uint32_t> eot;           // tokenizer.ggml.eot_token_id
  std::optional<uint32_t> eom;           // tokenizer.ggml.eom_token_id
  std::optional<uint32_t> unknown;       // tokenizer.ggml.unknown_token_id

  // bert: what it has for BOS and EOS, and whether EOS goes behind.
  std::optional<uint32_t> cls;  // tokenizer.ggml.cls_token_id
  std::optional<uint32_t> sep;  // tokenizer.ggml.seperator_token_id (sic)
  std::optional<bool> add_sep;  // tokenizer.ggml.add_sep_token

  // t5
  std::optional<bool> remove_extra_whitespaces;  // tokenizer.ggml.remove_extra_whitespaces
  std::string_view charsmap;                     // tokenizer.ggml.precompiled_charsmap, its bytes
};

}  // namespace invar::text
