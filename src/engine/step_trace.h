#pragma once
// A trace of steps: one JSON object per line, for people and for scripts that draw what a server did.

#include <string>

#include "engine/stats.h"

namespace invar {

std::string step_json(const StepRecord& step);  // without the end of the line

}  // namespace invar
