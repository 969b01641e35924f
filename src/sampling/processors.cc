#include "sampling/processors.h"

namespace invar {
namespace {

constexpr Processor kProcessors[] = {
    kMaskProcessor,     kMinTokensProcessor, kRepetitionProcessor,  kFrequencyProcessor, kPresenceProcessor,
    kDryProcessor,      kBiasProcessor,      kTemperatureProcessor, kTopNSigmaProcessor, kTopKProcessor,
    kTypicalPProcessor, kTopPProcessor,      kMinPProcessor,        kXtcProcessor,       kMirostatProcessor,
};

}  // namespace

std::span<const Processor> processors() {
  return kProcessors;
}

}  // namespace invar
