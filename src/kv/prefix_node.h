#pragma once
// PrefixNode: one page of a known prefix. Made, owned and destroyed by PrefixCache.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kv/page_pool.h"

namespace invar {

class PrefixPath;

struct PrefixNode {
  PrefixNode* parent = nullptr;  // nullptr: a root, which has no tokens and no pages
  int32_t first_position = 0;    // of tokens[0]
  std::vector<int32_t> tokens;   // 64, fewer only at the end of a sequence that ended there
  std::vector<PageRef> pages;    // [groups]; empty where a window has let go of it
  std::vector<std::unique_ptr<PrefixNode>> children;  // by their tokens, ascending
  std::vector<PrefixPath*> standing;                  // sequences whose last full page this is
  uint64_t last_used = 0;
  uint64_t digest = 0, unsalted = 0;  // of all tokens up to here, with and without the salt

  bool full() const { return parent == nullptr || int32_t(tokens.size()) == kPageTokens; }
  int32_t end() const { return first_position + int32_t(tokens.size()); }
  bool needed() const { return !children.empty() || !standing.empty(); }

  // The child that agrees with `rest` for most tokens, and for how many; {nullptr, 0} if none has the first.
  struct Nearest {
    PrefixNode* child = nullptr;
    int32_t common = 0;
  };
  Nearest nearest_child(std::span<const int32_t> rest) const;
};

// The first so many elements are equal.
int32_t common_tokens(std::span<const int32_t> a, std::span<const int32_t> b);

}  // namespace invar
