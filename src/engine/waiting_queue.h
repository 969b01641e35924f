#pragma once
// WaitingQueue: sequences that do not take part in steps, each in the line of its tenant. The next one comes
// from the tenant that has the fewest running, by rank among those. Owns them; engine thread only.

#include <cstdint>
#include <map>
#include <memory>

#include "engine/rank.h"
#include "engine/sequence.h"

namespace invar {

class WaitingQueue {
 public:
  void add(std::unique_ptr<Sequence> sequence);
  // nullptr when nothing waits.
  Sequence* next() const;
  std::unique_ptr<Sequence> take_next();
  // Running sequences of a tenant that were taken from here or will come back.
  void started(uint64_t tenant) { ++running_[tenant]; }
  void stopped(uint64_t tenant);
  // The last by rank that holds pages: a fork that has not run yet, or one that found a known prefix.
  Sequence* last_with_pages() const;

  bool empty() const { return size_ == 0; }
  int32_t size() const { return size_; }

  template <class F>
  void for_each(F f) const {
    for (const auto& [tenant, line] : lines_)
      for (const auto& [rank, sequence] : line)
        f(*sequence);
  }
  // Does nothing if the sequence does not wait here. f(std::unique_ptr<Sequence>&) may replace it by one of
  // the same rank and tenant; it goes if it is finished then.
  template <class F>
  void settle(const Sequence& sequence, F f) {
    const auto line = lines_.find(sequence.tenant());
    if (line == lines_.end()) return;
    const auto at = line->second.find(sequence.rank());
    if (at == line->second.end()) return;
    f(at->second);
    if (!at->second->finished()) return;
    line->second.erase(at);
    if (line->second.empty()) lines_.erase(line);
    --size_;
  }

 private:
  using Line = std::map<Rank, std::unique_ptr<Sequence>>;
  std::map<uint64_t, Line>::const_iterator next_line() const;

  std::map<uint64_t, Line> lines_;       // by tenant, none of them empty
  std::map<uint64_t, int32_t> running_;  // by tenant, none of them 0
  int32_t size_ = 0;
};

}  // namespace invar
