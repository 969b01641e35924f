#pragma once
// mu of mirostat: twice tau at first, then moved by eta times how far the surprise of each chosen token lies
// above tau. Surprise is measured before mirostat's own cut. A sequence keeps it; tokens that are forced or
// belong to the prompt do not move it, so it is a function of the chosen tokens alone.

#include "sampling/params.h"

namespace invar {

class Candidates;
struct ProcessorInput;

void mirostat_apply(const ProcessorInput& in, Candidates& candidates);

double mirostat_start(const SamplingParams& params);
// log_probability: natural, of the chosen token.
double mirostat_next(const SamplingParams& params, double mu, double log_probability);

}  // namespace invar
