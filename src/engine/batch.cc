#include "engine/batch.h"

namespace invar {

void Batch::gather(std::span<const Row> rows, const PagePool& pool, std::span<const KvGroup> groups) {
  rows_.assign(rows.begin(), rows.end());
  tokens_.clear();
  sequences_.clear();
  logit_rows_.clear();
  first_logit_.clear();
  views_.clear();
  runs_.clear();
  run_begin_.clear();
  const int32_t group_count = int32_t(groups.size());

  for (const Row& row : rows) {
    const int32_t first = tokens(), count = int32_t(row.tokens.size());
    tokens_.insert(tokens_.end(), row.tokens.begin(), row.tokens.end());
    sequences_.push_back({first, count, row.first_position, {}, row.sequence->long_rope()});
    first_logit_.push_back(logit_rows());
    for (int32_t i = count - row.logits; i < count; ++i)
      logit_rows_.push_back(first + i);
    for (int32_t g = 0; g < group_count; ++g) {
      run_begin_.push_back(runs_.size());
      row.cache->append_runs(g, row.first_position + count, &runs_);
    }
  }
  run_begin_.push_back(runs_.size());

  // Spans are made once nothing moves any more.
  const std::span<const KvRun> runs = runs_;
  for (size_t view = 0; view + 1 < run_begin_.size(); ++view) {
    const int32_t g = int32_t(view) % group_count;
    views_.push_back({&pool.layout(g),
                      runs.subspan(run_begin_[view], run_begin_[view + 1] - run_begin_[view]),
                      groups[g].window});
  }
  for (size_t row = 0; row < sequences_.size(); ++row)
    sequences_[row].kv = std::span<const KvView>(views_).subspan(row * groups.size(), groups.size());
}

}  // namespace invar
