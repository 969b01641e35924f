#include "sampling/processor.h"

// A line per processor, in the order of the chain: its name, which is that of its file in processors/ and of
// its functions NAME_active and NAME_apply; its link and the link's letter; whether it is a filter.
#define INVAR_PROCESSORS(PROCESSOR)                 \
  PROCESSOR(mask, nullptr, 0, false)                \
  PROCESSOR(min_tokens, nullptr, 0, false)          \
  PROCESSOR(repetition, "penalties", 'e', false)    \
  PROCESSOR(frequency, "penalties", 'e', false)     \
  PROCESSOR(presence, "penalties", 'e', false)      \
  PROCESSOR(dry, "dry", 'd', false)                 \
  PROCESSOR(bias, nullptr, 0, false)                \
  PROCESSOR(temperature, "temperature", 't', false) \
  PROCESSOR(top_n_sigma, "top_n_sigma", 's', true)  \
  PROCESSOR(top_k, "top_k", 'k', true)              \
  PROCESSOR(typical_p, "typ_p", 'y', true)          \
  PROCESSOR(top_p, "top_p", 'p', true)              \
  PROCESSOR(min_p, "min_p", 'm', true)              \
  PROCESSOR(xtc, "xtc", 'x', true)                  \
  PROCESSOR(mirostat, nullptr, 0, false)

namespace invar {

#define INVAR_DECLARE(name, link, letter, filter) \
  bool name##_active(const ProcessorInput& in);   \
  void name##_apply(const ProcessorInput& in, Candidates& candidates);
INVAR_PROCESSORS(INVAR_DECLARE)

namespace {

#define INVAR_ENTRY(name, link, letter, filter) {#name, link, letter, filter, name##_active, name##_apply},
constexpr Processor kProcessors[] = {INVAR_PROCESSORS(INVAR_ENTRY)};

}  // namespace

std::span<const Processor> processors() {
  return kProcessors;
}

}  // namespace invar
