#include "text/stop_strings.h"

#include <utility>

#include <fmt/format.h>
#include "base/check.h"
#include "base/utf8.h"

namespace invar::text {
namespace {

class StopGuard final : public Guard {
 public:
  StopGuard(std::shared_ptr<const StopStrings> stops, std::shared_ptr<const Tokenizer> tokenizer,
            Detokenizer::Options decoding, int32_t min_tokens)
      : stops_(std::move(stops)), detokenizer_(std::move(tokenizer), decoding), early_(min_tokens - 1) {}

  bool mask(std::span<uint32_t>) override { return false; }

  Verdict accept(int32_t token) override {
    const bool early = early_ > 0;
    early_ -= early;
    text_.clear();
    detokenizer_.push(token, text_);
    const ByteMatcher& matcher = stops_->matcher();
    for (const char c : text_) {
      state_ = matcher.next(state_, static_cast<uint8_t>(c));
      if (matcher.match(state_) >= 0 && !early) return {.action = Verdict::Action::kStop, .forced = {}};
    }
    return {};
  }

  std::unique_ptr<Guard> clone() const override { return std::make_unique<StopGuard>(*this); }

 private:
  std::shared_ptr<const StopStrings> stops_;
  Detokenizer detokenizer_;
  ByteMatcher::State state_ = ByteMatcher::kStart;
  int32_t early_;     // tokens to come that may not end the answer
  std::string text_;  // scratch
};

}  // namespace

Result<std::shared_ptr<const StopStrings>> StopStrings::compile(std::span<const std::string> strings) {
  if (strings.empty()) return std::shared_ptr<const StopStrings>();
  std::vector<std::string_view> views;
  views.reserve(strings.size());
  size_t total = 0;
  for (size_t i = 0; i < strings.size(); ++i) {
    if (strings[i].empty()) return invalid_argument(fmt::format("stop[{}] is an empty string", i));
    total += strings[i].size();
    if (total > kMaxBytes) {
      return invalid_argument(
          fmt::format("stop: the strings have more than {} bytes together; send fewer", kMaxBytes));
    }
    if (!is_utf8(strings[i])) return invalid_argument(fmt::format("stop[{}] is not UTF-8", i));
    views.push_back(strings[i]);
  }
  return std::shared_ptr<const StopStrings>(new StopStrings(views));
}

std::unique_ptr<Guard> make_stop_guard(std::shared_ptr<const StopStrings> stops,
                                       std::shared_ptr<const Tokenizer> tokenizer,
                                       Detokenizer::Options decoding, int32_t min_tokens) {
  CHECK(stops != nullptr);
  return std::make_unique<StopGuard>(std::move(stops), std::move(tokenizer), decoding, min_tokens);
}

}  // namespace invar::text
