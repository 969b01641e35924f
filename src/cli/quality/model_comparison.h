#pragma once
// compare_models(): two models, or one under two settings, side by side on a text; what the kl and convert
// verbs share. Main thread.

#include <memory>
#include <string>

#include "cli/engine_flags.h"
#include "cli/interrupt.h"
#include "cli/quality/comparison.h"
#include "cli/quality/scored_text.h"

namespace invar {

struct ComparedModel {
  EngineFlags flags;
  std::shared_ptr<const Model> model;  // set by compare_models() unless it is there
};

struct ModelComparison {
  ScoredText text;
  Comparison figures;
};

// a counts as the truth. The context is that of a's flags, else what both were trained for.
Result<ModelComparison> compare_models(ComparedModel& a, ComparedModel& b, const ScoredTextFlags& text,
                                       Interrupt& interrupt);

// "KL(A||B)    mean ..." and "top-1 ...", each with its line end.
std::string figures_text(const Comparison& figures);

}  // namespace invar
