#include "text/tokenizer.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include "base/check.h"
#include "base/quote.h"
#include "text/bridge_call.h"
#include "text/hf_config.h"

namespace invar::text {
namespace {

// Ends of a turn by name, for files that name only the end of the whole text.
constexpr std::string_view kTurnEnds[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>",       "<end_of_turn>", "<|eom_id|>",           "<|end_of_turn|>",
    "<|return|>", "<|call|>",   "<|endofturn|>", "<turn|>",       "<|END_OF_TURN_TOKEN|>"};

// Ends of a text by name, for files of ranks, which name none.
constexpr std::string_view kTextEnds[] = {"</s>", "<|endoftext|>"};

std::vector<iv_text> to_iv(const std::vector<std::string_view>& items) {
  std::vector<iv_text> out(items.size());
  std::transform(items.begin(), items.end(), out.begin(), [](std::string_view s) { return text::to_iv(s); });
  return out;
}

Result<int32_t> checked_id(const char* key, std::optional<uint32_t> id, int32_t vocab_size) {
  if (!id) return kNoToken;
  if (*id >= static_cast<uint32_t>(vocab_size)) {
    return corrupt(
        fmt::format("tokenizer.ggml.{}: id {} is outside the vocabulary of {}", key, *id, vocab_size));
  }
  return static_cast<int32_t>(*id);
}

Result<int32_t> id_of_config_token(const Tokenizer& tokenizer, const HfTokenizerConfig& config,
                                   const char* key, const char* file_name) {
  const std::string_view token = config.special_token(key);
  if (token.empty()) return kNoToken;
  const int32_t id = tokenizer.id_of(token);
  if (id == kNoToken) {
    return corrupt(fmt::format("tokenizer_config.json: {} {} is not in {}", key, quote(token), file_name));
  }
  return id;
}

}  // namespace

Tokenizer::Tokenizer(const iv_tokenizer* handle) : handle_(handle) {
  iv_table table;
  iv_tokenizer_table(handle, &table);
  CHECK(table.count <= static_cast<uint32_t>(std::numeric_limits<int32_t>::max()));
  bytes_ = reinterpret_cast<const char*>(table.bytes);
  offsets_ = table.offsets;
  flags_ = table.flags;
  vocab_size_ = static_cast<int32_t>(table.count);
  strip_start_ = table.strip_start;
  has_byte_fallback_ =
      std::any_of(flags_, flags_ + vocab_size_, [](uint8_t f) { return (f & IV_TOKEN_RAW_BYTE) != 0; });
  prefix_.assign(table.prefix, table.prefix + table.prefix_count);
  suffix_.assign(table.suffix, table.suffix + table.suffix_count);
}

Tokenizer::~Tokenizer() {
  iv_tokenizer_free(handle_);
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_gguf(const GgufVocab& vocab) {
  const std::vector<iv_text> tokens = to_iv(vocab.tokens), merges = to_iv(vocab.merges);
  const std::vector<int32_t> all_normal(vocab.token_types.empty() ? vocab.tokens.size() : 0, 1);
  const std::span<const int32_t> types = vocab.token_types.empty() ? all_normal : vocab.token_types;
  iv_gguf_vocab in{};
  in.model = text::to_iv(vocab.model);
  in.pre = text::to_iv(vocab.pre);
  in.tokens = tokens.data();
  in.token_count = tokens.size();
  in.types = types.data();
  in.type_count = types.size();
  in.scores = vocab.scores.data();
  in.score_count = vocab.scores.size();
  in.merges = merges.data();
  in.merge_count = merges.size();
  in.space_prefix = vocab.add_space_prefix.value_or(vocab.model == "llama" || vocab.model == "t5") ? 1 : 0;
  in.remove_extra_whitespaces = vocab.remove_extra_whitespaces.value_or(false) ? 1 : 0;
  in.unknown = vocab.unknown ? int64_t{*vocab.unknown} : -1;
  in.charsmap = text::to_iv(vocab.charsmap);
  const iv_tokenizer* handle = nullptr;
  iv_around wanted{};
  RETURN_IF_ERROR(bridge_status(iv_tokenizer_from_gguf(&in, &handle, &wanted)));
  std::shared_ptr<Tokenizer> t(new Tokenizer(handle));

  ASSIGN_OR_RETURN(t->bos_, checked_id("bos_token_id", vocab.bos, t->vocab_size_));
  ASSIGN_OR_RETURN(t->eos_, checked_id("eos_token_id", vocab.eos, t->vocab_size_));
  // Encoders stand between marks that have names of their own.
  const bool between_marks = vocab.model == "bert" || (vocab.model == "gpt2" && wanted.eos != 0);
  if (between_marks && vocab.cls) {
    ASSIGN_OR_RETURN(t->bos_, checked_id("cls_token_id", vocab.cls, t->vocab_size_));
  }
  if (between_marks && vocab.sep) {
    ASSIGN_OR_RETURN(t->eos_, checked_id("seperator_token_id", vocab.sep, t->vocab_size_));
  }
  ASSIGN_OR_RETURN(t->eot_, checked_id("eot_token_id", vocab.eot, t->vocab_size_));
  ASSIGN_OR_RETURN(const int32_t eom, checked_id("eom_token_id", vocab.eom, t->vocab_size_));
  if (vocab.add_bos.value_or(false) && t->bos_ == kNoToken) {
    return corrupt("tokenizer.ggml.add_bos_token is set, but there is no tokenizer.ggml.bos_token_id");
  }
  if (vocab.add_eos.value_or(false) && t->eos_ == kNoToken) {
    return corrupt("tokenizer.ggml.add_eos_token is set, but there is no tokenizer.ggml.eos_token_id");
  }
  t->prefix_.clear();
  t->suffix_.clear();
  // Newer files of encoders say by add_sep whether one stands between two texts.
  const std::optional<bool> add_eos = between_marks && !vocab.add_eos ? vocab.add_sep : vocab.add_eos;
  if (vocab.add_bos.value_or(wanted.bos != 0) && t->bos_ != kNoToken) t->prefix_.push_back(t->bos_);
  if (add_eos.value_or(wanted.eos != 0) && t->eos_ != kNoToken) t->suffix_.push_back(t->eos_);
  t->collect_stop_ids(eom);
  return std::shared_ptr<const Tokenizer>(std::move(t));
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_json(std::string_view tokenizer_json,
                                                              std::string_view tokenizer_config_json) {
  const iv_tokenizer* handle = nullptr;
  RETURN_IF_ERROR(bridge_status(iv_tokenizer_from_json(text::to_iv(tokenizer_json), &handle)));
  std::shared_ptr<Tokenizer> t(new Tokenizer(handle));
  RETURN_IF_ERROR(t->apply_config(tokenizer_config_json, "tokenizer.json"));
  t->collect_stop_ids(kNoToken);
  return std::shared_ptr<const Tokenizer>(std::move(t));
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_ranks(std::string_view file_name,
                                                               std::string_view content,
                                                               std::string_view tokenizer_config_json) {
  const iv_tokenizer* handle = nullptr;
  RETURN_IF_ERROR(
      bridge_status(iv_tokenizer_from_ranks(text::to_iv(file_name), text::to_iv(content), &handle)));
  std::shared_ptr<Tokenizer> t(new Tokenizer(handle));
  RETURN_IF_ERROR(t->apply_config(tokenizer_config_json, std::string(file_name).c_str()));
  for (const std::string_view name : kTextEnds) {
    if (t->eos_ == kNoToken && t->is_control(t->id_of(name))) t->eos_ = t->id_of(name);
  }
  t->collect_stop_ids(kNoToken);
  return std::shared_ptr<const Tokenizer>(std::move(t));
}

Status Tokenizer::apply_config(std::string_view tokenizer_config_json, const char* file_name) {
  ASSIGN_OR_RETURN(const HfTokenizerConfig config, parse_hf_tokenizer_config(tokenizer_config_json));
  ASSIGN_OR_RETURN(bos_, id_of_config_token(*this, config, "bos_token", file_name));
  ASSIGN_OR_RETURN(eos_, id_of_config_token(*this, config, "eos_token", file_name));
  if (bos_ == kNoToken && !prefix_.empty()) bos_ = prefix_.front();
  // A flag in the config wins over what the tokenizer's file itself adds.
  if (config.add_bos && bos_ != kNoToken && *config.add_bos != add_bos()) {
    prefix_ = *config.add_bos ? std::vector<int32_t>{bos_} : std::vector<int32_t>();
  }
  if (config.add_eos && eos_ != kNoToken && *config.add_eos != add_eos()) {
    suffix_ = *config.add_eos ? std::vector<int32_t>{eos_} : std::vector<int32_t>();
  }
  return {};
}

void Tokenizer::collect_stop_ids(int32_t eom) {
  auto add = [this](int32_t id) {
    if (id != kNoToken && std::find(stop_ids_.begin(), stop_ids_.end(), id) == stop_ids_.end())
      stop_ids_.push_back(id);
  };
  add(eos_);
  add(eot_);
  add(eom);
  for (const std::string_view name : kTurnEnds) {
    const int32_t id = id_of(name);
    if (!is_control(id)) continue;
    if (eot_ == kNoToken && id != eos_) eot_ = id;
    add(id);
  }
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, Special special) const {
  if (text.size() > kMaxEncodedBytes)
    return resource_exhausted(
        fmt::format("a text of {} bytes; at most {} are tokenized at once", text.size(), kMaxEncodedBytes));
  BridgeBuffer ids;
  RETURN_IF_ERROR(bridge_status(
      iv_tokenizer_encode(handle_, text::to_iv(text), special == Special::kParse ? 1 : 0, ids.out())));
  std::vector<int32_t> out(ids.bytes().size() / sizeof(int32_t));
  if (!out.empty()) std::memcpy(out.data(), ids.bytes().data(), out.size() * sizeof(int32_t));
  return out;
}

Status Tokenizer::check_rows(int64_t rows) const {
  if (vocab_size_ <= rows) return {};
  return corrupt(
      fmt::format("the tokenizer has {} tokens, but the model has {} embedding rows: they are of different "
                  "models; take both from one place",
                  vocab_size_, rows));
}

bool Tokenizer::is_control(int32_t id) const {
  return in_range(id) && (flags_[id] & IV_TOKEN_CONTROL) != 0;
}

int32_t Tokenizer::id_of(std::string_view token) const {
  int64_t id = kNoToken;
  if (iv_tokenizer_id(handle_, text::to_iv(token), &id) != 0) return kNoToken;
  return static_cast<int32_t>(id);
}

Result<std::string> Tokenizer::reference_decode(std::span<const int32_t> ids, bool skip_control) const {
  const std::vector<uint32_t> unsigned_ids(ids.begin(), ids.end());
  BridgeBuffer text;
  RETURN_IF_ERROR(bridge_status(iv_tokenizer_decode(handle_, unsigned_ids.data(), unsigned_ids.size(),
                                                    skip_control ? 1 : 0, text.out())));
  return std::string(text.bytes());
}

}  // namespace invar::text
