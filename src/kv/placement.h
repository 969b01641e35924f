#pragma once
// KvPlacement: which positions of a sequence stay in memory. Two numbers; what the bytes mean is the codec's
// business.

#include <cstdint>

#include "kv/codec.h"

namespace invar {

struct KvPlacement {
  int32_t page_tokens = kPageTokens;  // positions per page
  int32_t keep = 0;                   // newest positions that must stay readable; 0 = all of them

  // Pages that hold positions [0, end).
  int32_t pages_for(int32_t end) const { return (end + page_tokens - 1) / page_tokens; }
  // Pages a sequence of `end` tokens holds at most, while `step` further tokens are written.
  int32_t peak_pages(int32_t end, int32_t step) const;
  // The first page that a sequence of `length` tokens still needs: its next query reads from length - keep +
  // 1 on.
  int32_t first_page(int32_t length) const {
    const int32_t first = keep == 0 ? 0 : length - keep + 1;
    return first > 0 ? first / page_tokens : 0;
  }
};

}  // namespace invar
