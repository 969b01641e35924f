#pragma once
// The token sequences that spell a breaker of DRY, found over the whole vocabulary, since a string can begin
// inside a token; kept for the lists that were asked for last. Any thread.

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "sampling/dry_breakers.h"
#include "text/tokenizer.h"

namespace invar::api {

// A token that holds a whole breaker is one by itself. One that ends in the beginning of a breaker is one
// together with the tokens of the rest, of which the first DryBreakers::kMaxLength - 1 count.
std::shared_ptr<const DryBreakers> find_breakers(const text::Tokenizer& tokenizer,
                                                 const std::vector<std::string>& breakers);

// "\n", ":", "\"" and "*".
std::vector<std::string> default_breakers();

class DryBreakerCache {
 public:
  std::shared_ptr<const DryBreakers> get(const text::Tokenizer& tokenizer,
                                         const std::vector<std::string>& breakers);

 private:
  static constexpr size_t kKept = 8;
  std::mutex mutex_;
  std::vector<std::pair<std::vector<std::string>, std::shared_ptr<const DryBreakers>>> lists_;  // newest last
};

}  // namespace invar::api
