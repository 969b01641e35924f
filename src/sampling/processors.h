#pragma once
// The processors that exist, each defined in processors/NAME.cc.

#include "sampling/processor.h"

namespace invar {

#define INVAR_PROCESSOR(symbol, name)                                  \
  bool name##_active(const ProcessorInput& in);                        \
  void name##_apply(const ProcessorInput& in, Candidates& candidates); \
  inline constexpr Processor symbol = {#name, name##_active, name##_apply}

INVAR_PROCESSOR(kMaskProcessor, mask);
INVAR_PROCESSOR(kRepetitionProcessor, repetition);
INVAR_PROCESSOR(kFrequencyProcessor, frequency);
INVAR_PROCESSOR(kPresenceProcessor, presence);
INVAR_PROCESSOR(kBiasProcessor, bias);
INVAR_PROCESSOR(kTemperatureProcessor, temperature);
INVAR_PROCESSOR(kTopKProcessor, top_k);
INVAR_PROCESSOR(kTopPProcessor, top_p);
INVAR_PROCESSOR(kMinPProcessor, min_p);

#undef INVAR_PROCESSOR

}  // namespace invar
