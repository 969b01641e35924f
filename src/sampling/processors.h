#pragma once
// The processors that exist, each defined in processors/NAME.cc.

#include "sampling/processor.h"

namespace invar {

#define INVAR_PROCESSOR(symbol, name, link, filter)                    \
  bool name##_active(const ProcessorInput& in);                        \
  void name##_apply(const ProcessorInput& in, Candidates& candidates); \
  inline constexpr Processor symbol = {#name, link, filter, name##_active, name##_apply}

INVAR_PROCESSOR(kMaskProcessor, mask, nullptr, false);
INVAR_PROCESSOR(kMinTokensProcessor, min_tokens, nullptr, false);
INVAR_PROCESSOR(kRepetitionProcessor, repetition, "penalties", false);
INVAR_PROCESSOR(kFrequencyProcessor, frequency, "penalties", false);
INVAR_PROCESSOR(kPresenceProcessor, presence, "penalties", false);
INVAR_PROCESSOR(kDryProcessor, dry, "dry", false);
INVAR_PROCESSOR(kBiasProcessor, bias, nullptr, false);
INVAR_PROCESSOR(kTemperatureProcessor, temperature, "temperature", false);
INVAR_PROCESSOR(kTopNSigmaProcessor, top_n_sigma, "top_n_sigma", true);
INVAR_PROCESSOR(kTopKProcessor, top_k, "top_k", true);
INVAR_PROCESSOR(kTypicalPProcessor, typical_p, "typ_p", true);
INVAR_PROCESSOR(kTopPProcessor, top_p, "top_p", true);
INVAR_PROCESSOR(kMinPProcessor, min_p, "min_p", true);
INVAR_PROCESSOR(kXtcProcessor, xtc, "xtc", true);
INVAR_PROCESSOR(kMirostatProcessor, mirostat, nullptr, false);

#undef INVAR_PROCESSOR

}  // namespace invar
