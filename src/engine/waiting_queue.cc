#include "engine/waiting_queue.h"

#include <tuple>
#include <utility>

#include "base/check.h"

namespace invar {

void WaitingQueue::add(std::unique_ptr<Sequence> sequence) {
  Line& line = lines_[sequence->tenant()];
  const Rank rank = sequence->rank();
  CHECK(line.emplace(rank, std::move(sequence)).second);
  ++size_;
}

std::map<uint64_t, WaitingQueue::Line>::const_iterator WaitingQueue::next_line() const {
  auto best = lines_.end();
  std::tuple<int32_t, Rank> best_key;
  for (auto line = lines_.begin(); line != lines_.end(); ++line) {
    const auto running = running_.find(line->first);
    const std::tuple key{running == running_.end() ? 0 : running->second, line->second.begin()->first};
    if (best == lines_.end() || key < best_key) best = line, best_key = key;
  }
  return best;
}

Sequence* WaitingQueue::next() const {
  const auto line = next_line();
  return line == lines_.end() ? nullptr : line->second.begin()->second.get();
}

std::unique_ptr<Sequence> WaitingQueue::take_next() {
  const auto line = lines_.find(next_line()->first);
  std::unique_ptr<Sequence> sequence = std::move(line->second.begin()->second);
  line->second.erase(line->second.begin());
  if (line->second.empty()) lines_.erase(line);
  --size_;
  return sequence;
}

void WaitingQueue::stopped(uint64_t tenant) {
  const auto running = running_.find(tenant);
  CHECK(running != running_.end());
  if (--running->second == 0) running_.erase(running);
}

Sequence* WaitingQueue::last_with_pages() const {
  Sequence* last = nullptr;
  for_each([&](Sequence& sequence) {
    if (sequence.cache().length() > 0 && (last == nullptr || last->rank() < sequence.rank()))
      last = &sequence;
  });
  return last;
}

}  // namespace invar
