#pragma once
// Sequence: one answer in flight; everything that belongs to it hangs here and goes when it goes. Owned by
// the scheduler, engine thread only, but for sample_input(). Its tokens are known (prompt, chosen, forced)
// ahead of its cache; a step feeds the next pending ones, and when none is left the logits of the last one
// choose the next. So prefill, decode, recompute after preemption and forced tokens are the same thing.
// Further answers to the same prompt are its forks: sequences without pages that it owns until the prompt is
// computed. Then each gets a fork of the cache, chooses from the same logits and is a sequence like any
// other.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/prompt_scorer.h"
#include "engine/rank.h"
#include "engine/request.h"
#include "engine/request_metrics.h"
#include "engine/stream.h"
#include "kv/kv_cache.h"
#include "kv/prefix_cache.h"
#include "sampling/sampler.h"
#include "sampling/token_counts.h"

namespace invar {

class Sequence {
 public:
  // context bounds prompt and answer together; long_rope: Graph::rotates_long of the prompt.
  Sequence(GenerateRequest request, std::shared_ptr<Stream> stream, int64_t submitted_ns,
           PrefixCache* prefixes, KvCache cache, int32_t context, bool long_rope = false);

  int32_t length() const { return int32_t(tokens_.size()); }
  int32_t prompt_length() const { return prompt_length_; }
  int32_t generated() const { return length() - prompt_length_; }
  int32_t computed() const { return computed_; }  // positions below were in the cache at some time
  int32_t pending() const { return length() - cache_.length(); }  // known, not yet in the cache
  std::span<const int32_t> next_tokens(int32_t n) const {
    return std::span(tokens_).subspan(size_t(cache_.length()), size_t(n));
  }
  // Somebody waits for it: one token is left to compute, or all that are left come after everything that was
  // ever computed and after the prompt, as a guard forces them.
  bool goes_first() const { return pending() == 1 || cache_.length() >= std::max(computed_, prompt_length_); }
  Rank rank() const { return rank_; }
  void set_place(uint64_t serial, int32_t choice) { rank_.serial = serial, rank_.choice = choice; }
  int32_t priority() const { return request_.priority; }
  uint64_t tenant() const { return request_.tenant; }
  bool long_rope() const { return long_rope_; }
  const RequestTimes& times() const { return times_; }
  KvCache& cache() { return cache_; }
  const KvCache& cache() const { return cache_; }

  // Takes over what others have computed of the known tokens: full pages, and with `tail` a copy of one that
  // agrees at its beginning. At least the last known token stays pending, for its logits. Returns how many
  // were added.
  int32_t reuse(bool tail);
  // The tokens that this sequence would find if `other`, which is about to compute, went first.
  int32_t tokens_to_come_from(const Sequence& other) const;
  void preempt();       // gives up its pages, to be computed again; full ones stay known to the prefix cache
  void forget_found();  // of one that never ran: gives back what it found, as if it had not looked
  // It ended: what it computed stays known.
  void leave_pages();

  void cancel() { stream_->cancel(); }
  // Ends what nobody wants any more, of itself and its forks. True if there was anything.
  bool end_cancelled();
  bool finished() const { return finish_ != FinishReason::kNone; }

  // Logit rows that a row of the next `tokens` pending ones needs: its last ones.
  int32_t logits_wanted(int32_t tokens) const;

  void scheduled(int64_t now_ns);  // a step has a row of it
  // A step wrote the next `tokens` pending ones. logits: [logits_wanted(tokens), vocab].
  void commit(int32_t tokens, std::span<const float> logits, PromptScorer& scorer);
  // True when the cache has caught up and a token is to be chosen from the last logits.
  bool chooses() const { return pending() == 0 && !finished(); }
  // What the guard allows, a bit per token id in `words` words; empty where that is everything.
  std::vector<uint32_t> mask(size_t words) const;
  // What the choice depends on; borrows from the sequence. Reads only: any thread, while the engine thread
  // waits for the choices.
  SampleInput sample_input(std::span<const float> logits, std::span<const uint32_t> mask) const;
  // Appends a chosen token and whatever the guard forces after it, and ends the sequence where it must end. A
  // guard that forces what is no token of the vocabulary ends it with an error.
  void take(Choice choice, int32_t vocab);

  void finish(FinishReason reason);
  void fail(Status error);
  // Hands the events of this step to the stream and tells the consumer. now_ns: when that is.
  void publish(RequestMetrics& metrics, int64_t now_ns);

  void add_fork(std::unique_ptr<Sequence> fork) { forks_.push_back(std::move(fork)); }
  std::span<const std::unique_ptr<Sequence>> forks() const { return forks_; }
  // f(Sequence&) for itself and its forks.
  template <class F>
  void for_each_choice(F f) {
    f(*this);
    for (const auto& fork : forks_)
      f(*fork);
  }
  std::vector<std::unique_ptr<Sequence>> release_forks() { return std::exchange(forks_, {}); }
  void drop_finished_forks();
  // The prompt is computed, as that of `parent`, whose pages it shares from now on.
  void split_from(const Sequence& parent);
  // Of a sequence that ended before its prompt was computed: its next fork, which goes on with the other
  // forks and, unless a step failed, with its pages. nullptr = there is none.
  std::unique_ptr<Sequence> successor();

 private:
  bool stops_at(int32_t token) const;
  void append(int32_t token);
  void show(int32_t position, std::span<const float> logits, PromptScorer& scorer);
  void end_without_answer();
  bool shows_prompt() const;  // somebody waits for logits of the prompt
  int32_t reuse_limit() const;
  void count_prompt();
  void release_pages();

  GenerateRequest request_;
  std::shared_ptr<Stream> stream_;
  RequestTimes times_;
  Rank rank_;
  PrefixPath path_;  // before the pages: they go first
  KvCache cache_;
  int32_t context_;
  bool long_rope_;
  int32_t prompt_length_;
  int32_t computed_ = 0;  // positions below were committed at least once: their logits were shown
  bool counting_;         // penalties need counts_,
  bool counted_ = false;  // which have the prompt
  std::vector<int32_t> tokens_;
  std::vector<int32_t> forced_;
  TokenCounts counts_;
  double mirostat_mu_;  // moved by chosen tokens only: computing again leaves it alone
  std::vector<TokenEvent> events_;
  PromptReuse reused_;
  bool looked_up_ = false;
  int32_t preemptions_ = 0;
  FinishReason finish_ = FinishReason::kNone;
  std::vector<std::unique_ptr<Sequence>> forks_;
};

}  // namespace invar
