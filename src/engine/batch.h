#pragma once
// Row: one sequence's share of a step. Batch: a step as plain arrays, gathered from rows without padding.
// Engine thread only; the arrays keep their capacity from step to step.

#include <cstdint>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "engine/sequence.h"
#include "graph/graph.h"
#include "kv/page_pool.h"

namespace invar {

struct Row {
  Sequence* sequence;
  const KvCache* cache;             // the sequence's, or a fork of it that holds a branch of drafts
  std::span<const int32_t> tokens;  // live until the step ends; slots for all of them are reserved
  int32_t first_position;
  int32_t logits;  // the last so many of its tokens want logits
};

class Batch {
 public:
  // pool and groups: what the rows' caches were made from.
  void gather(std::span<const Row> rows, const PagePool& pool, std::span<const KvGroup> groups);

  StepInputs inputs() const { return {tokens_, sequences_, logit_rows_}; }
  std::span<const Row> rows() const { return rows_; }
  int32_t tokens() const { return int32_t(tokens_.size()); }
  int32_t logit_rows() const { return int32_t(logit_rows_.size()); }
  int32_t first_token(size_t row) const { return sequences_[row].first_row; }
  int32_t first_logit(size_t row) const { return first_logit_[row]; }

 private:
  std::vector<Row> rows_;
  std::vector<int32_t> tokens_;          // [T]
  std::vector<SequenceRows> sequences_;  // [rows]
  std::vector<int32_t> logit_rows_;      // [L]
  std::vector<int32_t> first_logit_;     // [rows]
  std::vector<KvView> views_;            // [rows, groups]
  std::vector<KvRun> runs_;              // of all views, one after the other
  std::vector<size_t> run_begin_;        // [rows * groups + 1]
};

}  // namespace invar
