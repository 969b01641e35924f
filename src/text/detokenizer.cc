#include "text/detokenizer.h"

#include <utility>

#include "base/utf8.h"

namespace invar::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, Options options)
    : tokenizer_(std::move(tokenizer)),
      skip_control_(options.skip_control),
      replace_each_byte_(tokenizer_->has_byte_fallback()),
      strip_left_(options.at_text_start ? tokenizer_->strip_start() : 0) {}

void Detokenizer::push(int32_t id, std::string& out, std::vector<uint8_t>* widths) {
  if (skip_control_ && tokenizer_->is_control(id)) return;
  for (const char c : tokenizer_->token_bytes(id))
    push_byte(static_cast<uint8_t>(c), out, widths);
}

void Detokenizer::push_byte(uint8_t byte, std::string& out, std::vector<uint8_t>* widths) {
  if (strip_left_ > 0) {
    if (byte == ' ') {
      --strip_left_;
      if (widths) widths->push_back(0);
      return;
    }
    strip_left_ = 0;
  }
  if (pending_size_ > 0) {
    if (utf8_continues(static_cast<uint8_t>(pending_[0]), pending_size_, byte)) {
      pending_[pending_size_++] = static_cast<char>(byte);
      if (pending_size_ == pending_length_) {
        out.append(pending_.data(), pending_size_);
        if (widths) widths->insert(widths->end(), pending_size_, 1);
        pending_size_ = 0;
      }
      return;
    }
    drop_pending(out, widths);
  }
  const int length = utf8_length_of(byte);
  if (length == 1) {
    out.push_back(static_cast<char>(byte));
    if (widths) widths->push_back(1);
  } else if (length == 0) {
    out.append(kReplacement);
    if (widths) widths->push_back(kReplacement.size());
  } else {
    pending_[0] = static_cast<char>(byte);
    pending_size_ = 1;
    pending_length_ = length;
  }
}

void Detokenizer::drop_pending(std::string& out, std::vector<uint8_t>* widths) {
  for (int i = 0; i < pending_size_; ++i) {
    const bool marked = i == 0 || replace_each_byte_;
    if (marked) out.append(kReplacement);
    if (widths) widths->push_back(marked ? kReplacement.size() : 0);
  }
  pending_size_ = 0;
}

void Detokenizer::finish(std::string& out, std::vector<uint8_t>* widths) {
  drop_pending(out, widths);
  strip_left_ = 0;
}

std::string detokenize(std::shared_ptr<const Tokenizer> tokenizer, std::span<const int32_t> ids,
                       Detokenizer::Options options) {
  Detokenizer detokenizer(std::move(tokenizer), options);
  std::string text;
  for (const int32_t id : ids)
    detokenizer.push(id, text);
  detokenizer.finish(text);
  return text;
}

}  // namespace invar::text
