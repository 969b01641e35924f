#include "kv/prefix_cache.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"
#include "base/hash.h"

namespace invar {
namespace {

constexpr size_t kRememberedEvictions = 1 << 16;

uint64_t chained(uint64_t before, std::span<const int32_t> tokens) {
  return hash64(std::as_bytes(tokens), before);
}

void give_back(PageRef& page) {
  page.keep(false);
  page = PageRef();
}

// Of every group the page that holds `position`.
std::vector<PageRef> pages_of(const KvCache& cache, int32_t position) {
  std::vector<PageRef> pages;
  for (int32_t g = 0; g < cache.groups(); ++g)
    pages.push_back(cache.page(g, position / kPageTokens));
  return pages;
}

}  // namespace

const char* prefix_end_name(PrefixEnd end) {
  constexpr std::array kNames = {"complete", "off",        "new",     "differs",
                                 "evicted",  "other_salt", "expired", "no_room"};
  return kNames[size_t(end)];
}

void PrefixPath::stand_on(PrefixNode* node) {
  if (node == node_) return;
  PrefixNode* const left = std::exchange(node_, node);
  if (node != nullptr) {
    node->standing.push_back(this);
    cache_->idle_.erase({node->last_used, node});
  }
  if (left != nullptr) {
    std::erase(left->standing, this);
    cache_->offer(left);
  }
}

void PrefixPath::leave() {
  if (node_ == nullptr) return;
  cache_->touch(node_);
  stand_on(nullptr);
  cache_->shrink();
}

PrefixCache::PrefixCache(PagePool* pool, std::span<const KvPlacement> placements, uint64_t max_bytes)
    : pool_(pool), placements_(placements), max_bytes_(max_bytes) {}

PrefixCache::~PrefixCache() {
  clear();
  CHECK(nodes_ == 0);  // no sequence outlives the cache
}

PrefixNode* PrefixCache::root(const PrefixScope& scope) {
  std::unique_ptr<PrefixNode>& root = roots_[scope];
  if (root == nullptr) {
    root = std::make_unique<PrefixNode>();
    const int32_t variant = -1;  // no token
    root->unsalted = chained(scope.tenant, std::span(&variant, scope.long_rope ? 1 : 0));
    root->digest = hash64(std::as_bytes(std::span(&scope.salt, 1)), root->unsalted);
  }
  return root.get();
}

PrefixNode* PrefixCache::add_child(PrefixNode* parent, std::span<const int32_t> tokens) {
  auto node = std::make_unique<PrefixNode>();
  node->parent = parent;
  node->first_position = parent->end();
  node->tokens.assign(tokens.begin(), tokens.end());
  node->pages.resize(placements_.size());
  node->digest = chained(parent->digest, tokens);
  node->unsalted = chained(parent->unsalted, tokens);
  node->last_used = ++clock_;
  const auto at = std::lower_bound(parent->children.begin(), parent->children.end(), node,
                                   [](const auto& a, const auto& b) { return a->tokens < b->tokens; });
  ++unsalted_[node->unsalted];
  ++nodes_;
  idle_.erase({parent->last_used, parent});
  return parent->children.insert(at, std::move(node))->get();
}

// Whoever uses a node uses everything above it. What is above was used last, so that the oldest is a leaf.
void PrefixCache::touch(PrefixNode* node) {
  for (; node->parent != nullptr; node = node->parent) {
    const bool offered = idle_.erase({node->last_used, node}) > 0;
    node->last_used = ++clock_;
    if (offered) idle_.insert({node->last_used, node});
  }
}

void PrefixCache::offer(PrefixNode* node) {
  if (node->needed()) return;
  if (node->parent != nullptr) {
    idle_.insert({node->last_used, node});
  } else {
    std::erase_if(roots_, [&](const auto& root) { return root.second.get() == node; });
  }
}

void PrefixCache::evict(PrefixNode* node) {
  if (evicted_order_.size() < kRememberedEvictions) {
    evicted_order_.push_back(node->digest);
  } else {
    evicted_.erase(std::exchange(evicted_order_[evicted_next_], node->digest));
    evicted_next_ = (evicted_next_ + 1) % kRememberedEvictions;
  }
  evicted_.insert(node->digest);
  ++evictions_;
  remove(node);
}

void PrefixCache::remove(PrefixNode* node) {
  CHECK(!node->needed());
  idle_.erase({node->last_used, node});
  const auto named = unsalted_.find(node->unsalted);
  if (--named->second == 0) unsalted_.erase(named);
  --nodes_;
  for (PageRef& page : node->pages)
    if (page) give_back(page);
  PrefixNode* const parent = node->parent;
  std::erase_if(parent->children, [&](const auto& child) { return child.get() == node; });
  offer(parent);
}

bool PrefixCache::evict_oldest() {
  if (idle_.empty()) return false;
  evict(idle_.begin()->second);
  return true;
}

void PrefixCache::clear() {
  while (evict_oldest()) {
  }
}

uint64_t PrefixCache::idle_bytes() const {
  uint64_t bytes = 0;
  for (int32_t g = 0; g < pool_->classes(); ++g)
    bytes += uint64_t(pool_->idle(g)) * pool_->layout(g).page_bytes();
  return bytes;
}

void PrefixCache::shrink() {
  const auto drop_any = [this] {
    bool any = false;
    for (int32_t g = 0; g < pool_->classes(); ++g)
      any = drop_windowed(g, Windowed::kOutOfReach) || any;
    return any;
  };
  while (idle_bytes() > max_bytes_ && (drop_any() || evict_oldest())) {
  }
}

bool PrefixCache::make_room(int32_t size_class, int32_t pages) {
  if (obtainable(size_class) < pages) return false;
  while (pool_->available(size_class) < pages)
    if (!drop_windowed(size_class, Windowed::kOutOfReach) && !evict_oldest() &&
        !drop_windowed(size_class, Windowed::kAll))
      return false;
  return true;
}

// Gives up half of a windowed group's pages that no sequence holds, the oldest first and those where prefixes
// part last; half at once, because finding them visits every node. Out of reach: needed only by a prompt that
// parts there, not by one that goes on at an end.
bool PrefixCache::drop_windowed(int32_t size_class, Windowed which) {
  const KvPlacement& placement = placements_[size_t(size_class)];
  if (placement.keep == 0) return false;
  std::vector<PrefixNode*> found;
  // Returns the nearest end of what goes on from the node.
  const auto visit = [&](auto& self, PrefixNode* node) -> int32_t {
    const bool ends = node->children.empty() || !node->standing.empty();
    int32_t nearest = ends ? node->end() : std::numeric_limits<int32_t>::max();
    for (const auto& child : node->children)
      nearest = std::min(nearest, self(self, child.get()));
    if (node->parent == nullptr || !node->needed()) return nearest;
    const PageRef& page = node->pages[size_t(size_class)];
    const bool reached = placement.first_page(nearest) * kPageTokens < node->end();
    if (page && !page.shared() && !(reached && which == Windowed::kOutOfReach)) found.push_back(node);
    return nearest;
  };
  for (const auto& [salt, root] : roots_)
    visit(visit, root.get());
  if (found.empty()) return false;
  const auto half = found.begin() + ptrdiff_t((found.size() + 1) / 2);
  std::nth_element(found.begin(), half - 1, found.end(), [](const PrefixNode* a, const PrefixNode* b) {
    return std::pair(a->children.size() > 1, a->last_used) < std::pair(b->children.size() > 1, b->last_used);
  });
  for (auto node = found.begin(); node != half; ++node)
    give_back((*node)->pages[size_t(size_class)]);
  return true;
}

void PrefixCache::enter(PrefixPath& path, const std::vector<int32_t>& tokens, const KvCache& pages) {
  if (path.node_ == nullptr) path.stand_on(root(path.scope_));
  path.tokens_ = &tokens;
  path.pages_ = &pages;
}

PrefixLookup PrefixPath::match(const std::vector<int32_t>& tokens, int32_t limit, bool partial,
                               KvCache& pages) {
  CHECK(pages.reserved() == pages.length());
  if (cache_->max_bytes_ == 0) return {};
  cache_->enter(*this, tokens, pages);
  PrefixNode* node = node_;
  const auto rest = [&] {
    const int32_t from = std::min(limit, node->end());
    return std::span(tokens).subspan(size_t(from), size_t(limit - from));
  };
  for (auto next = node->nearest_child(rest()); next.common == kPageTokens;
       next = node->nearest_child(rest()))
    node = next.child;
  PrefixCache::Tail tail;
  if (partial) tail = cache_->nearest_tail(*this, *node, rest());

  PrefixLookup found{PrefixEnd::kComplete};
  if (node->end() + tail.tokens < limit)
    found = {cache_->explain(*node, rest(), tail.tokens), tail.next_token};
  while (node->end() + tail.tokens > pages.length()) {
    const PrefixEnd obstacle = cache_->take_over(*this, node, tail, pages);
    if (obstacle == PrefixEnd::kComplete) break;
    found = {obstacle};
    if (tail.tokens == 0) node = node->parent;
    tail = {};
  }
  return found;
}

// The page after `node` that agrees with most of `rest`: of a child, or of a sequence that is at it.
PrefixCache::Tail PrefixCache::nearest_tail(const PrefixPath& path, const PrefixNode& node,
                                            std::span<const int32_t> rest) const {
  Tail tail;
  const PrefixNode::Nearest nearest = node.nearest_child(rest);
  const auto token_at = [](std::span<const int32_t> tokens, int32_t at) {
    return size_t(at) < tokens.size() ? tokens[size_t(at)] : -1;
  };
  if (nearest.common > 0)
    tail = {nearest.common, nearest.child->pages, token_at(nearest.child->tokens, nearest.common)};
  if (nearest.common == 0 && !node.children.empty() && node.parent != nullptr)
    tail.next_token = node.children[0]->tokens[0];
  for (const PrefixPath* other : node.standing) {
    if (other == &path) continue;
    const std::span<const int32_t> theirs = std::span(*other->tokens_).first(size_t(other->pages_->length()));
    const std::span<const int32_t> their_rest = theirs.subspan(size_t(node.end()));
    const int32_t common = common_tokens(their_rest, rest);
    if (common > tail.tokens)
      tail = {common, pages_of(*other->pages_, node.end()), token_at(their_rest, common)};
  }
  return tail;
}

// The pages of `node`'s prefix and a copy of the tail's become the cache's.
PrefixEnd PrefixCache::take_over(PrefixPath& path, PrefixNode* node, const Tail& tail, KvCache& cache) {
  const int32_t length = node->end() + tail.tokens;
  std::vector<std::vector<PageRef>> pages(placements_.size());
  for (size_t g = 0; g < placements_.size(); ++g) {
    const int32_t first = placements_[g].first_page(length) * kPageTokens;
    const PrefixNode* at = node;
    for (; at->parent != nullptr && at->first_position >= first; at = at->parent) {
      if (!at->pages[g]) return PrefixEnd::kExpired;
      pages[g].push_back(at->pages[g]);
    }
    std::reverse(pages[g].begin(), pages[g].end());
    if (tail.tokens > 0 && !tail.pages[g]) return PrefixEnd::kExpired;
  }
  PrefixNode* const before = path.node_;
  path.stand_on(node);
  if (tail.tokens > 0) {
    // What is copied and what precedes it is in our hands, so that making room cannot take it.
    for (int32_t g = 0; g < pool_->classes(); ++g) {
      if (make_room(g, 1)) continue;
      path.stand_on(before);  // where its pages end
      return PrefixEnd::kNoRoom;
    }
    for (size_t g = 0; g < pages.size(); ++g)
      pages[g].push_back(pool_->take_copy(tail.pages[g]));
  }
  touch(node);
  cache.resume(length, std::move(pages));
  return PrefixEnd::kComplete;
}

// Why the prompt is not known beyond `node` and `common` further tokens; `rest` follows the node.
PrefixEnd PrefixCache::explain(const PrefixNode& node, std::span<const int32_t> rest, int32_t common) const {
  if (rest.size() >= size_t(kPageTokens)) {
    const std::span<const int32_t> page = rest.first(kPageTokens);
    if (evicted_.contains(chained(node.digest, page))) return PrefixEnd::kEvicted;
    if (unsalted_.contains(chained(node.unsalted, page))) return PrefixEnd::kOtherSalt;
  }
  return node.parent == nullptr && common == 0 ? PrefixEnd::kNew : PrefixEnd::kDiffers;
}

void PrefixPath::publish(const std::vector<int32_t>& tokens, KvCache& pages) {
  if (cache_->max_bytes_ == 0) return;
  cache_->enter(*this, tokens, pages);
  while (node_->end() + kPageTokens <= pages.length()) {
    const int32_t first = node_->end();
    const std::span<const int32_t> page = std::span(tokens).subspan(size_t(first), kPageTokens);
    const PrefixNode::Nearest nearest = node_->nearest_child(page);
    PrefixNode* child = nearest.child;
    if (nearest.common < kPageTokens) {
      // What was an end is the beginning of the new one.
      if (child != nullptr && nearest.common == int32_t(child->tokens.size())) cache_->remove(child);
      child = cache_->add_child(node_, page);
    }
    for (int32_t g = 0; g < pages.groups(); ++g) {
      PageRef& known = child->pages[size_t(g)];
      const PageRef own = pages.page(g, first / kPageTokens);
      if (!own) continue;
      if (known) {
        pages.replace(g, first / kPageTokens, known);
      } else {
        known = own;
        known.keep(true);
      }
    }
    stand_on(child);
  }
  cache_->shrink();
}

void PrefixPath::keep_tail(const std::vector<int32_t>& tokens, const KvCache& pages) {
  if (node_ == nullptr) return;
  const int32_t first = node_->end();
  const std::span<const int32_t> rest =
      std::span(tokens).subspan(size_t(first), size_t(pages.length() - first));
  CHECK(rest.size() < size_t(kPageTokens));  // full pages are published
  if (node_->nearest_child(rest).common < int32_t(rest.size())) {
    PrefixNode* const child = cache_->add_child(node_, rest);
    child->pages = pages_of(pages, first);
    for (PageRef& page : child->pages)
      page.keep(true);
    cache_->offer(child);
  }
}

void PrefixPath::follow(const PrefixPath& other, const std::vector<int32_t>& tokens, const KvCache& pages) {
  if (other.node_ == nullptr) return leave();
  stand_on(other.node_);
  tokens_ = &tokens;
  pages_ = &pages;
}

}  // namespace invar
