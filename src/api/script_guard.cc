#include <chrono>
#include <thread>
#include <utility>

#include "api/script.h"
#include "base/clock.h"

namespace invar::api {
namespace {

class ScriptGuard final : public Guard {
 public:
  ScriptGuard(std::shared_ptr<const ScriptedAnswer> answer, int32_t end_token, std::unique_ptr<Guard> inner)
      : answer_(std::move(answer)), end_token_(end_token), inner_(std::move(inner)) {}

  bool mask(std::span<uint32_t> words) override {
    const bool ended = group_ == answer_->groups.size();
    if (ended && end_token_ < 0) return false;
    if (!ended) wait();
    const int32_t token = ended ? end_token_ : answer_->groups[group_].tokens[next_];
    for (uint32_t& word : words)
      word = 0;
    if (size_t(token) / 32 < words.size()) words[size_t(token) / 32] |= 1u << (token % 32);
    return true;
  }

  Verdict accept(int32_t token) override {
    if (group_ == answer_->groups.size()) return {.action = Verdict::Action::kStopBefore, .forced = {}};
    const std::vector<int32_t>& tokens = answer_->groups[group_].tokens;
    std::span<const int32_t> forced;
    if (next_ == 0) forced = std::span(tokens).subspan(1);
    if (++next_ == tokens.size()) {
      next_ = 0;
      ++group_;
      ready_ns_ = now_ns() + cost_ns();
    }
    if (inner_ != nullptr) {
      const Verdict verdict = inner_->accept(token);
      if (verdict.action != Verdict::Action::kContinue) return verdict;
    }
    const bool ends_here = group_ == answer_->groups.size() && end_token_ < 0 && !answer_->length;
    return {.action = ends_here ? Verdict::Action::kStop : Verdict::Action::kContinue, .forced = forced};
  }

  std::unique_ptr<Guard> clone() const override {
    auto copy =
        std::make_unique<ScriptGuard>(answer_, end_token_, inner_ == nullptr ? nullptr : inner_->clone());
    copy->group_ = group_;
    copy->next_ = next_;
    copy->ready_ns_ = ready_ns_;
    return copy;
  }

 private:
  int64_t cost_ns() const { return group_ < answer_->groups.size() ? answer_->groups[group_].cost_ns : 0; }

  // The costs of sequences that share a step overlap, as those of a real batch do.
  void wait() {
    if (ready_ns_ < 0) ready_ns_ = now_ns() + cost_ns();
    const int64_t left = ready_ns_ - now_ns();
    if (left > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(left));
  }

  std::shared_ptr<const ScriptedAnswer> answer_;
  int32_t end_token_;
  std::unique_ptr<Guard> inner_;
  size_t group_ = 0, next_ = 0;  // the token that comes next
  int64_t ready_ns_ = -1;        // when its group may come; -1: the answer has not begun
};

}  // namespace

std::unique_ptr<Guard> make_script_guard(std::shared_ptr<const ScriptedAnswer> answer, int32_t end_token,
                                         std::unique_ptr<Guard> inner) {
  return std::make_unique<ScriptGuard>(std::move(answer), end_token, std::move(inner));
}

}  // namespace invar::api
