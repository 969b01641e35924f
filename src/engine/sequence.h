#pragma once
// Sequence: one request in flight; everything that belongs to it hangs here and goes when it goes. Owned by
// the scheduler, engine thread only. Its tokens are known (prompt, chosen, forced) ahead of its cache; a step
// feeds the next pending ones, and when none is left the logits of the last one choose the next. So prefill,
// decode, recompute after preemption and forced tokens are the same thing.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/request.h"
#include "engine/stream.h"
#include "kv/kv_cache.h"
#include "sampling/sampler.h"
#include "sampling/token_counts.h"

namespace invar {

class Sequence {
 public:
  // arrival orders sequences by age. context bounds prompt and answer together.
  Sequence(uint64_t arrival, GenerateRequest request, std::shared_ptr<Stream> stream, KvCache cache,
           int32_t context);

  uint64_t arrival() const { return arrival_; }
  int32_t length() const { return int32_t(tokens_.size()); }
  int32_t prompt_length() const { return prompt_length_; }
  int32_t generated() const { return length() - prompt_length_; }
  int32_t computed() const { return computed_; }  // positions below were in the cache at some time
  int32_t pending() const { return length() - cache_.length(); }  // known, not yet in the cache
  std::span<const int32_t> next_tokens(int32_t n) const {
    return std::span(tokens_).subspan(size_t(cache_.length()), size_t(n));
  }
  KvCache& cache() { return cache_; }
  const KvCache& cache() const { return cache_; }
  bool cancelled() const { return stream_->cancelled() || stream_.use_count() == 1; }
  bool finished() const { return finish_ != FinishReason::kNone; }

  // Logit rows that a row of the next `tokens` pending ones needs: its last ones.
  int32_t logits_wanted(int32_t tokens) const;

  // A step wrote the next `tokens` pending ones. logits: [logits_wanted(tokens), vocab].
  void commit(int32_t tokens, std::span<const float> logits);
  // True when the cache has caught up and a token is to be chosen from the last logits.
  bool chooses() const { return pending() == 0 && !finished(); }
  Result<Choice> choose(std::span<const float> logits, Sampler& sampler, std::span<uint32_t> mask_scratch);
  // Appends a chosen token and whatever the guard forces after it, and ends the sequence where it must end.
  void take(Choice choice);

  void finish(FinishReason reason);
  void fail(Status error);
  // Hands the events of this step to the stream; the number of tokens among them.
  int32_t publish();

 private:
  bool stops_at(int32_t token) const;
  void append(int32_t token);

  uint64_t arrival_;
  GenerateRequest request_;
  std::shared_ptr<Stream> stream_;
  KvCache cache_;
  int32_t context_;
  int32_t prompt_length_;
  int32_t computed_ = 0;  // positions below were committed at least once: their logits were shown
  bool counting_;         // penalties need counts_
  std::vector<int32_t> tokens_;
  std::vector<int32_t> forced_;
  TokenCounts counts_;
  std::vector<TokenEvent> events_;
  FinishReason finish_ = FinishReason::kNone;
};

}  // namespace invar
