#pragma once
// What a phase of a running step has to read and compute at least: its limits, whatever the kernels do.

#include "backends/cpu/plan.h"
#include "backends/cpu/step_state.h"
#include "base/trace.h"

namespace invar {

// Of a phase that has just run. Weights count once per step, keys and values once per sequence that attends.
SpanWork phase_work(const Phase& phase, const StepState& step);

}  // namespace invar
