#include "sampling/processor.h"

// A line per processor, in the order of the chain: its name, which is that of
// its file in processors/ and of its functions NAME_active and NAME_apply; its
// link; whether it is a filter.
#define INVAR_PROCESSORS(PROCESSOR)                                            \
  PROCESSOR(mask, nullptr, false)                                              \
  PROCESSOR(min_tokens, nullptr, false)                                        \
  PROCESSOR(repetition, "penalties", false)                                    \
  PROCESSOR(frequency, "penalties", false)                                     \
  PROCESSOR(presence, "penalties", false)                                      \
  PROCESSOR(dry, "dry", false)                                                 \
  PROCESSOR(bias, nullptr, false)                                              \
  PROCESSOR(temperature, "temperature", false)                                 \
  PROCESSOR(top_n_sigma, "top_n_sigma", true)                                  \
  PROCESSOR(top_k, "top_k", true)                                              \
  PROCESSOR(typical_p, "typ_p", true)                                          \
  PROCESSOR(top_p, "top_p", true)                                              \
  PROCESSOR(min_p, "min_p", true)                                              \
  PROCESSOR(xtc, "xtc", true)                                                  \
  PROCESSOR(mirostat, nullptr, false)

namespace invar {

#define INVAR_DECLARE(name, link, filter)                                      \
  bool name##_active(const ProcessorInput &in);                                \
  void name##_apply(const ProcessorInput &in, Candidates &candidates);
INVAR_PROCESSORS(INVAR_DECLARE)

namespace {

#define INVAR_ENTRY(name, link, filter)                                        \
  {#name, link, filter, name##_active, name##_apply},
constexpr Processor kProcessors[] = {INVAR_PROCESSORS(INVAR_ENTRY)};

} // namespace

std::span<const Processor> processors() { return kProcessors; }

} // namespace invar
