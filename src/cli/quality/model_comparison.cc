#include "cli/quality/model_comparison.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/progress.h"
#include "cli/quality/window_scores.h"

namespace invar {

Result<ModelComparison> compare_models(ComparedModel& a, ComparedModel& b, const ScoredTextFlags& text_flags,
                                       Interrupt& interrupt) {
  if (a.model == nullptr) {
    ASSIGN_OR_RETURN(a.model, a.flags.load_model());
  }
  if (b.model == nullptr) {
    // One model is in memory once.
    ASSIGN_OR_RETURN(const std::string path, b.flags.model_path());
    if (path == a.model->source().path()) {
      b.model = a.model;
    } else {
      ASSIGN_OR_RETURN(b.model, b.flags.load_model());
    }
  }
  if (a.model != b.model) RETURN_IF_ERROR(check_same_vocabulary(*a.model, *b.model, !text_flags.from_ids()));
  int32_t context = std::min(a.model->info().context_length, b.model->info().context_length);
  if (a.flags.options.context > 0) context = a.flags.options.context;
  ModelComparison c;
  ASSIGN_OR_RETURN(c.text, text_flags.read(*a.model, context));
  for (ComparedModel* side : {&a, &b}) {
    side->flags.options.context = c.text.shape.window;
    side->flags.options.prefix_cache_bytes = 0;  // no two windows begin alike
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine_a, a.flags.make_engine(a.model));
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine_b, b.flags.make_engine(b.model));
  Progress progress("comparing", scored_tokens(c.text.windows), Progress::Unit::kItems);
  std::atomic<bool> stop{false};
  interrupt.on_signal([&] { stop = true; });
  const auto rows =
      compare_windows(*engine_a, *engine_b, c.text.windows, {&stop, [&](int64_t n) { progress.advance(n); }});
  interrupt.on_signal(nullptr);
  if (!rows.ok()) return rows.status();
  for (const ComparedModel* side : {&a, &b})
    RETURN_IF_ERROR(side->model->wait_verified());
  c.figures = summarize(*rows);
  return c;
}

std::string figures_text(const Comparison& c) {
  return fmt::format(
      "KL(A||B)    mean {:.6f} +- {:.6f}, median {:.6f}, p99 {:.6f}, max {:.6f} nats\n"
      "top-1       {:.2f}% agree ({} of {})\n",
      c.mean, c.mean_error, c.median, c.p99, c.max, 100 * c.top1_agreement, c.same_top, c.tokens);
}

}  // namespace invar
