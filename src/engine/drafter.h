#pragma once
// Drafter: guesses the tokens that come next. The interface for draft sources; nothing implements or calls it
// yet. To be called at the end of a step, on the engine thread. A guess costs time when wrong and never
// changes a token: the next step verifies it by equality.

#include <cstdint>
#include <span>
#include <vector>

namespace invar {

struct DraftRow {
  uint64_t sequence;                // stable while the sequence lives
  std::span<const int32_t> tokens;  // prompt and answer so far
  int32_t limit;                    // guesses that can be used
  std::vector<int32_t>* drafts;     // out, empty on entry
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual void propose(std::span<DraftRow> rows) = 0;
  virtual void forget(uint64_t sequence) = 0;  // it ended
};

}  // namespace invar
