#include "sampling/processors.h"

namespace invar {
namespace {

constexpr Processor kProcessors[] = {
    kMaskProcessor,        kRepetitionProcessor, kFrequencyProcessor, kPresenceProcessor, kBiasProcessor,
    kTemperatureProcessor, kTopKProcessor,       kTopPProcessor,      kMinPProcessor,
};

}  // namespace

std::span<const Processor> processors() {
  return kProcessors;
}

}  // namespace invar
