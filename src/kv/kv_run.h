#pragma once
// KvRun, KvView: what attention reads and appends to, in position order. Plain borrowed pointers, valid for
// one step.

#include <cstddef>
#include <cstdint>
#include <span>

#include "kv/codec.h"

namespace invar {

// Consecutive positions in one page: position p sits in slot p % 64.
struct KvRun {
  std::byte* page;
  int32_t first_position;
  int32_t length;
};

// One sequence in one KV group: runs ascending and gapless, including the slots reserved for this step's
// tokens. runs[0] may start later than position 0 when old pages of a window have expired.
struct KvView {
  const KvLayout* layout = nullptr;
  std::span<const KvRun> runs;
  int32_t window = 0;  // a query at p sees positions > p - window; 0 = all
};

}  // namespace invar
