#pragma once
// PrefixCache: what past and present sequences have computed, for others that begin with the same tokens. A
// tree of pages under a root per scope: a node is one page of every KV group with the tokens it holds and the
// chained digest of everything before it. Full pages are shared by reference; of a page that agrees only at
// its beginning the sequence gets a copy. Owned by the engine, engine thread only; the pages are the pool's,
// and the cache gives up those that no sequence uses whenever somebody needs room.
// The tokens themselves are compared, so equal digests never mix two prefixes up. Everything else that
// changes the bytes of a page (model, codec, numerics, adapter, tenant) is either fixed for the life of the
// pool or part of the salt.

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "kv/kv_cache.h"
#include "kv/page_pool.h"
#include "kv/placement.h"
#include "kv/prefix_node.h"

namespace invar {

class PrefixCache;

// Why a prompt was not found further than it was.
enum class PrefixEnd : uint8_t {
  kComplete,   // as far as it may
  kOff,        // no prefix cache
  kNew,        // nothing that begins like this is or was known
  kDiffers,    // the nearest known sequence has another token there, or ends
  kEvicted,    // it was known, and its pages were given up for others
  kOtherSalt,  // known under another salt only
  kExpired,    // known, but a sliding window has let go of what is needed to go on there
  kNoRoom,     // there is no page for a copy of the last, partly equal one
};
const char* prefix_end_name(PrefixEnd end);

struct PrefixLookup {
  PrefixEnd end = PrefixEnd::kOff;
  int32_t known_token = -1;  // that the nearest known sequence has at the end; -1 = it ends there too
};

// Who shares with whom: prompts of one tenant under one salt, if the same frequencies rotate their keys. The
// tenant is what a miss may tell about.
struct PrefixScope {
  uint64_t tenant = 0, salt = 0;
  bool long_rope = false;
  auto operator<=>(const PrefixScope&) const = default;
};

// Where one sequence stands in the tree: the node of its last full page, which stays, with everything above
// it, while the sequence stands there. A member of the sequence, declared before its KvCache; the functions
// take the tokens and the cache of that sequence, which must live as long.
class PrefixPath {
 public:
  PrefixPath(PrefixCache* cache, const PrefixScope& scope) : cache_(cache), scope_(scope) {}
  ~PrefixPath() { leave(); }
  PrefixPath(const PrefixPath&) = delete;
  PrefixPath& operator=(const PrefixPath&) = delete;

  // Puts as much of tokens[0, limit) as is known into `pages`, if that is more than is there; nothing may be
  // reserved. partial: with a copy of a page that agrees only at its beginning, where the known full ones
  // end. Says what ended it.
  PrefixLookup match(const std::vector<int32_t>& tokens, int32_t limit, bool partial, KvCache& pages);
  // Makes the full pages known; where another sequence was faster, its pages replace the own ones. To be
  // called after a commit and before pages expire.
  void publish(const std::vector<int32_t>& tokens, KvCache& pages);
  // The sequence ends: its last, unfinished page becomes known too. It lets go of its pages and leaves next.
  void keep_tail(const std::vector<int32_t>& tokens, const KvCache& pages);
  // Stands where `other` does: the sequence is a fork, or goes on with the pages of the other one.
  void follow(const PrefixPath& other, const std::vector<int32_t>& tokens, const KvCache& pages);
  // Back to the start; full pages stay known. The sequence holds none of them any more, so that they count.
  void leave();

  const PrefixNode* node() const { return node_; }  // nullptr before the first match or publish

 private:
  friend class PrefixCache;
  void stand_on(PrefixNode* node);

  PrefixCache* cache_;
  PrefixScope scope_;
  PrefixNode* node_ = nullptr;
  // What the sequence computes behind node_, so that others may copy its unfinished page. Valid while node_.
  const std::vector<int32_t>* tokens_ = nullptr;
  const KvCache* pages_ = nullptr;
};

class PrefixCache {
 public:
  // max_bytes bounds the pages that no sequence uses; 0 = keep nothing.
  PrefixCache(PagePool* pool, std::span<const KvPlacement> placements, uint64_t max_bytes);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // Gives up pages that nobody uses until `pages` are available in the size class, the least recently used
  // first. False if there are not enough.
  bool make_room(int32_t size_class, int32_t pages);
  // Available now or after make_room.
  int32_t obtainable(int32_t size_class) const {
    return pool_->available(size_class) + pool_->idle(size_class);
  }
  // Gives up everything that nobody uses.
  void clear();

  uint64_t idle_bytes() const;
  int64_t nodes() const { return nodes_; }
  int64_t evictions() const { return evictions_; }

 private:
  friend class PrefixPath;
  struct Tail {  // of a page that agrees only at its beginning
    int32_t tokens = 0;
    std::vector<PageRef> pages;  // [groups] if tokens > 0
    int32_t next_token = -1;     // that follows them there; -1 = none
  };
  void enter(PrefixPath& path, const std::vector<int32_t>& tokens, const KvCache& pages);
  PrefixNode* root(const PrefixScope& scope);
  PrefixNode* add_child(PrefixNode* parent, std::span<const int32_t> tokens);
  void touch(PrefixNode* node);
  void offer(PrefixNode* node);   // may be given up now, if nothing depends on it
  void evict(PrefixNode* node);   // for want of room
  void remove(PrefixNode* node);  // nothing may need it
  bool evict_oldest();
  enum class Windowed { kOutOfReach, kAll };
  bool drop_windowed(int32_t size_class, Windowed which);
  void shrink();
  Tail nearest_tail(const PrefixPath& path, const PrefixNode& node, std::span<const int32_t> rest) const;
  PrefixEnd take_over(PrefixPath& path, PrefixNode* node, const Tail& tail, KvCache& cache);
  PrefixEnd explain(const PrefixNode& node, std::span<const int32_t> rest, int32_t common) const;

  PagePool* pool_;
  std::span<const KvPlacement> placements_;
  uint64_t max_bytes_;
  std::map<PrefixScope, std::unique_ptr<PrefixNode>> roots_;
  std::set<std::pair<uint64_t, PrefixNode*>> idle_;  // that may be given up, by last use
  std::unordered_map<uint64_t, int32_t> unsalted_;   // nodes by their digest without salt
  std::unordered_set<uint64_t> evicted_;             // digests, the latest ones only
  std::vector<uint64_t> evicted_order_;              // ring of them
  size_t evicted_next_ = 0;
  uint64_t clock_ = 0;
  int64_t nodes_ = 0, evictions_ = 0;
};

}  // namespace invar
