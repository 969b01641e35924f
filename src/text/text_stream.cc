#include "text/text_stream.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"

namespace invar::text {
namespace {

std::string readable(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    size_t n = utf8_length(bytes);
    if (n > 0) {
      out.append(bytes.substr(0, n));
    } else {
      out.append("\xEF\xBF\xBD");
      n = 1;
      if (utf8_length_of(static_cast<uint8_t>(bytes[0])) > 1) {
        while (n < bytes.size() && utf8_continues(static_cast<uint8_t>(bytes[0]), static_cast<int>(n),
                                                  static_cast<uint8_t>(bytes[n])))
          ++n;
      }
    }
    bytes.remove_prefix(n);
  }
  return out;
}

}  // namespace

TextStream::TextStream(std::shared_ptr<const Tokenizer> tokenizer, Options options)
    : tokenizer_(std::move(tokenizer)),
      options_(std::move(options)),
      detokenizer_(tokenizer_, options_.decoding) {}

void TextStream::push(int32_t token, float logprob, std::span<const TokenScore> alternatives,
                      TextPiece& out) {
  if (end_ != TextEnd::kNone) return;
  ++pushed_;
  text_.clear();
  widths_.clear();
  if (options_.logprobs) add_entry(token, logprob, alternatives);
  detokenizer_.push(token, text_, options_.logprobs ? &widths_ : nullptr);
  fill_entries(text_, widths_);
  take(text_, out);
}

void TextStream::finish(TextEnd reason, TextPiece& out) {
  if (end_ != TextEnd::kNone) return;
  text_.clear();
  widths_.clear();
  detokenizer_.finish(text_, options_.logprobs ? &widths_ : nullptr);
  fill_entries(text_, widths_);
  take(text_, out);
  if (end_ != TextEnd::kNone) return;
  end_ = reason;
  release_all(out);
}

LogprobEntry::Token TextStream::described(int32_t id, float logprob) const {
  const std::string_view bytes = tokenizer_->token_bytes(id);
  return {.id = id, .text = readable(bytes), .bytes = std::string(bytes), .logprob = logprob};
}

void TextStream::add_entry(int32_t token, float logprob, std::span<const TokenScore> alternatives) {
  const bool hidden = options_.decoding.skip_control && tokenizer_->is_control(token);
  Pending pending{.entry = {}, .hidden = hidden, .undecided = 0, .end = filled_};
  pending.entry.token = described(token, logprob);
  pending.entry.token.bytes.clear();
  for (const TokenScore& a : alternatives)
    pending.entry.alternatives.push_back(described(a.token, a.logprob));
  if (!hidden) pending.undecided = tokenizer_->token_bytes(token).size();
  entries_.push_back(std::move(pending));
}

void TextStream::fill_entries(std::string_view text, std::span<const uint8_t> widths) {
  for (const uint8_t width : widths) {
    while (entries_[first_undecided_].undecided == 0)
      entries_[first_undecided_++].end = filled_;
    Pending& owner = entries_[first_undecided_];
    owner.entry.token.bytes.append(text.substr(0, width));
    text.remove_prefix(width);
    filled_ += width;
    owner.end = filled_;
    --owner.undecided;
  }
  // Entries without bytes stand where the text is now.
  while (first_undecided_ < entries_.size() && entries_[first_undecided_].undecided == 0)
    entries_[first_undecided_++].end = filled_;
}

void TextStream::take(std::string_view text, TextPiece& out) {
  if (options_.stops == nullptr) {
    held_.append(text);
    release(held_.size(), out);
    return;
  }
  const ByteMatcher& matcher = options_.stops->matcher();
  for (const char c : text) {
    held_.push_back(c);
    state_ = matcher.next(state_, static_cast<uint8_t>(c));
    matched_ = pushed_ < options_.min_tokens ? -1 : matcher.match(state_);
    if (matched_ < 0) continue;
    const size_t length = matcher.length(matched_);
    CHECK(length <= held_.size());
    held_.resize(held_.size() - length);
    end_ = TextEnd::kStop;
    release_all(out);
    return;
  }
  release(held_.size() - matcher.depth(state_), out);
}

void TextStream::hand_out(Pending& pending, TextPiece& out) {
  LogprobEntry::Token& token = pending.entry.token;
  if (!pending.hidden) token.text = readable(token.bytes);
  out.entries.push_back(std::move(pending.entry));
}

void TextStream::release(size_t bytes, TextPiece& out) {
  out.text.append(held_, 0, bytes);
  held_.erase(0, bytes);
  released_ += bytes;
  while (first_undecided_ > 0 && entries_.front().end <= released_) {
    hand_out(entries_.front(), out);
    entries_.pop_front();
    --first_undecided_;
  }
}

void TextStream::release_all(TextPiece& out) {
  release(held_.size(), out);
  for (Pending& pending : entries_) {
    std::string& bytes = pending.entry.token.bytes;
    const uint64_t begin = pending.end - bytes.size();
    bytes.resize(std::min<uint64_t>(bytes.size(), released_ - std::min(begin, released_)));
    hand_out(pending, out);
  }
  entries_.clear();
  first_undecided_ = 0;
}

}  // namespace invar::text
