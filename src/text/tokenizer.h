#pragma once
// Text to token ids, and the bytes of every id. Built once per model, immutable, shared by all threads.
// Ids are int32_t; kNoToken stands for "the model has none". Errors: vocabularies that are broken or of an
// unknown kind (the message names the key), text that is not UTF-8 or longer than kMaxEncodedBytes
// (kResourceExhausted).

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/gguf_vocab.h"

struct iv_tokenizer;

namespace invar::text {

inline constexpr int32_t kNoToken = -1;

// Of one text to encode: the library needs some 200 bytes of memory for each byte.
inline constexpr size_t kMaxEncodedBytes = size_t{16} << 20;

// Files of a model's folder that from_ranks reads.
inline constexpr const char* kRankFiles[] = {"tekken.json", "qwen.tiktoken"};

// What happens to the text of a special token, say "<|im_end|>", inside the text.
enum class Special {
  kParse,  // it becomes that token: for rendered templates
  kPlain,  // it is ordinary text: for what users wrote
};

class Tokenizer {
 public:
  static Result<std::shared_ptr<const Tokenizer>> from_gguf(const GgufVocab& vocab);
  // tokenizer_config_json may be "": then there is no EOS, and BOS only if tokenizer.json adds one.
  static Result<std::shared_ptr<const Tokenizer>> from_json(std::string_view tokenizer_json,
                                                            std::string_view tokenizer_config_json);
  // A file of byte strings by rank: tekken.json or one of kRankFiles; its name says what it leaves out.
  static Result<std::shared_ptr<const Tokenizer>> from_ranks(std::string_view file_name,
                                                             std::string_view content,
                                                             std::string_view tokenizer_config_json);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // The ids of the text alone. prefix() and suffix() go around a prompt that no chat template wrote.
  Result<std::vector<int32_t>> encode(std::string_view text, Special special) const;
  std::span<const int32_t> prefix() const { return prefix_; }
  std::span<const int32_t> suffix() const { return suffix_; }

  int32_t bos() const { return bos_; }
  int32_t eos() const { return eos_; }
  int32_t eot() const { return eot_; }                             // end of turn, where it is not EOS
  std::span<const int32_t> stop_ids() const { return stop_ids_; }  // all ids that end an answer
  bool add_bos() const { return bos_ != kNoToken && !prefix_.empty() && prefix_.front() == bos_; }
  bool add_eos() const { return eos_ != kNoToken && !suffix_.empty() && suffix_.back() == eos_; }

  // One more than the largest id. A model's output layer may have more rows (padding to a round number is
  // common): those ids can be sampled like any other and have no bytes, as in the libraries that the models
  // come from.
  int32_t vocab_size() const { return vocab_size_; }
  // Fewer rows than ids: an error, the two files do not belong together.
  Status check_rows(int64_t rows) const;
  std::string_view token_bytes(int32_t id) const {
    if (!in_range(id)) return {};
    return {bytes_ + offsets_[id], offsets_[id + 1] - offsets_[id]};
  }
  // Hidden when special tokens are skipped.
  bool is_control(int32_t id) const;
  // kNoToken when there is no such token. `token` is spelled as in the vocabulary.
  int32_t id_of(std::string_view token) const;

  // How a decoder of this vocabulary treats the edges (detokenizer.h).
  int strip_start() const { return strip_start_; }
  bool has_byte_fallback() const { return has_byte_fallback_; }

  // The library's own decoder: slow, the reference for the detokenizer.
  Result<std::string> reference_decode(std::span<const int32_t> ids, bool skip_control) const;

 private:
  explicit Tokenizer(const iv_tokenizer* handle);
  bool in_range(int32_t id) const { return id >= 0 && id < vocab_size_; }
  void collect_stop_ids(int32_t eom);
  Status apply_config(std::string_view tokenizer_config_json, const char* file_name);

  const iv_tokenizer* handle_;  // owned
  const char* bytes_ = nullptr;
  const uint32_t* offsets_ = nullptr;  // [vocab_size + 1]
  const uint8_t* flags_ = nullptr;     // [vocab_size]
  int32_t vocab_size_ = 0;
  int strip_start_ = 0;
  bool has_byte_fallback_ = false;
  std::vector<int32_t> prefix_, suffix_, stop_ids_;
  int32_t bos_ = kNoToken, eos_ = kNoToken, eot_ = kNoToken;
};

}  // namespace invar::text
