#include "cli/quality/window_scores.h"

#include <deque>
#include <optional>

#include "base/fp_environment.h"

namespace invar {
namespace {

const Status kInterrupted(Code::kCancelled, "interrupted");

bool stopped(const ScoreRun& run) {
  return run.stop != nullptr && run.stop->load(std::memory_order_acquire);
}

// The logits that one engine gives for the scored tokens of a window, a step at a time.
class LogitRows {
 public:
  LogitRows(Engine& engine, const ScoreWindow& window) : engine_(engine), window_(window) {}

  Status start() {
    GenerateRequest request;
    request.prompt = window_.ids;
    request.all_prompt_logits = true;
    request.on_logits = [this](int32_t position, std::span<const float> row) {
      // Row i predicts token i + 1.
      if (position + 1 >= window_.first_scored && size_t(position) + 1 < window_.ids.size())
        rows_.emplace_back(row.begin(), row.end());
    };
    ASSIGN_OR_RETURN(stream_, engine_.submit(std::move(request)));
    return {};
  }

  // Steps until there is a row.
  Result<std::vector<float>> next() {
    while (rows_.empty()) {
      if (!engine_.step()) {
        while (const std::optional<TokenEvent> event = stream_->try_next()) {
          if (event->finish == FinishReason::kError) return event->error;
        }
        return internal_error("the engine went idle before a window was scored");
      }
    }
    std::vector<float> row = std::move(rows_.front());
    rows_.pop_front();
    return row;
  }

  // The rest of the prompt's step, so that the engine is idle.
  Status finish() {
    while (engine_.step()) {
    }
    while (const std::optional<TokenEvent> event = stream_->try_next()) {
      if (event->finish == FinishReason::kError) return event->error;
    }
    return {};
  }

 private:
  Engine& engine_;
  const ScoreWindow& window_;
  std::shared_ptr<Stream> stream_;
  std::deque<std::vector<float>> rows_;
};

}  // namespace

Result<std::vector<double>> score_windows_with(Engine& engine, std::span<const ScoreWindow> windows,
                                               const ScoreRun& run) {
  std::vector<double> scores;
  scores.reserve(size_t(scored_tokens(windows)));
  for (const ScoreWindow& window : windows) {
    GenerateRequest request;
    request.prompt = window.ids;
    request.prompt_logprobs = 0;
    ASSIGN_OR_RETURN(const std::shared_ptr<Stream> stream, engine.submit(std::move(request)));
    int32_t at = 0;
    const auto take = [&]() -> Status {
      while (const std::optional<TokenEvent> event = stream->try_next()) {
        if (event->finish == FinishReason::kError) return event->error;
        if (!event->of_prompt) continue;
        if (at++ < window.first_scored) continue;
        scores.push_back(double(event->logprob));
        if (run.advance) run.advance(1);
      }
      return {};
    };
    while (engine.step()) {
      if (stopped(run)) return kInterrupted;
      RETURN_IF_ERROR(take());
    }
    RETURN_IF_ERROR(take());
    if (size_t(at) != window.ids.size())
      return internal_error("the engine went idle before a window was scored");
  }
  return scores;
}

Result<std::vector<RowDivergence>> compare_windows(Engine& p, Engine& q, std::span<const ScoreWindow> windows,
                                                   const ScoreRun& run) {
  std::vector<RowDivergence> rows;
  rows.reserve(size_t(scored_tokens(windows)));
  for (const ScoreWindow& window : windows) {
    LogitRows from_p(p, window), from_q(q, window);
    RETURN_IF_ERROR(from_p.start());
    RETURN_IF_ERROR(from_q.start());
    for (size_t i = size_t(window.first_scored); i < window.ids.size(); ++i) {
      if (stopped(run)) return kInterrupted;
      ASSIGN_OR_RETURN(const std::vector<float> p_row, from_p.next());
      ASSIGN_OR_RETURN(const std::vector<float> q_row, from_q.next());
      const FpEnvironment contract;
      auto divergence = compare_rows(p_row, q_row, window.ids[i]);
      if (!divergence.ok()) return divergence.status();
      rows.push_back(*divergence);
      if (run.advance) run.advance(1);
    }
    RETURN_IF_ERROR(from_p.finish());
    RETURN_IF_ERROR(from_q.finish());
  }
  return rows;
}

}  // namespace invar
