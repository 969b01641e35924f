#pragma once
// Scores of windows of a text: one engine gives log-probabilities, two engines side by side give the distance
// of their distributions. Engines are stepped by hand on the calling thread; no more than two steps' logits
// are held at a time. `stop` (may be null) ends the work early with kCancelled.

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cli/quality/divergence.h"
#include "cli/quality/score_windows.h"
#include "engine/engine.h"

namespace invar {

struct ScoreRun {
  const std::atomic<bool>* stop = nullptr;
  std::function<void(int64_t tokens)> advance;  // scored tokens since the last call; may be empty
};

// The log-probability of each scored token in order, as the sampler counts it.
Result<std::vector<double>> score_windows_with(Engine& engine, std::span<const ScoreWindow> windows,
                                               const ScoreRun& run);

// The same tokens; p is the engine that counts as the truth. Both must give logits of the same width.
Result<std::vector<RowDivergence>> compare_windows(Engine& p, Engine& q, std::span<const ScoreWindow> windows,
                                                   const ScoreRun& run);

}  // namespace invar
