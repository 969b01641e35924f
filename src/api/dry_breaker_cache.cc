#include "api/dry_breaker_cache.h"

#include <algorithm>
#include <optional>
#include <string_view>

namespace invar::api {

std::shared_ptr<const DryBreakers> find_breakers(const text::Tokenizer& tokenizer,
                                                 const std::vector<std::string>& breakers) {
  auto found = std::make_shared<DryBreakers>();
  for (const std::string& breaker : breakers) {
    const std::string_view whole = breaker;
    // By how many bytes of the breaker the token holds: the ids of the others.
    std::vector<std::optional<std::vector<int32_t>>> rests(whole.size());
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      const std::string_view bytes = tokenizer.token_bytes(id);
      if (bytes.find(whole) != std::string_view::npos) {
        found->add(std::span(&id, 1));
        continue;
      }
      for (size_t held = 1; held < whole.size() && held <= bytes.size(); ++held) {
        if (!bytes.ends_with(whole.substr(0, held))) continue;
        if (!rests[held].has_value()) {
          // A rest that begins inside a character is no text: it never stands behind this token alone.
          auto ids = tokenizer.encode(whole.substr(held), text::Special::kPlain);
          rests[held] = ids.ok() ? std::move(*ids) : std::vector<int32_t>();
          if (rests[held]->size() >= DryBreakers::kMaxLength)
            rests[held]->resize(DryBreakers::kMaxLength - 1);
        }
        if (rests[held]->empty()) continue;
        std::vector<int32_t> sequence = {id};
        sequence.insert(sequence.end(), rests[held]->begin(), rests[held]->end());
        found->add(sequence);
      }
    }
  }
  return found;
}

std::vector<std::string> default_breakers() {
  return {"\n", ":", "\"", "*"};
}

std::shared_ptr<const DryBreakers> DryBreakerCache::get(const text::Tokenizer& tokenizer,
                                                        const std::vector<std::string>& breakers) {
  const auto known = [&] {
    return std::find_if(lists_.begin(), lists_.end(), [&](const auto& l) { return l.first == breakers; });
  };
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = known(); at != lists_.end()) {
      std::rotate(at, at + 1, lists_.end());
      return lists_.back().second;
    }
  }
  std::shared_ptr<const DryBreakers> found = find_breakers(tokenizer, breakers);
  const std::lock_guard lock(mutex_);
  if (known() == lists_.end()) {
    if (lists_.size() == kKept) lists_.erase(lists_.begin());
    lists_.emplace_back(breakers, found);
  }
  return found;
}

}  // namespace invar::api
