#pragma once
// Facts about this machine and process, for benchmark reports and --stats. Read from /proc; what is not there
// is empty or 0.

#include <cstdint>
#include <string>

namespace invar {

struct Machine {
  std::string cpu;     // "AMD EPYC 7763 64-Core Processor"
  std::string system;  // "Linux 6.1.0"
  int cores = 0;       // that this process may keep busy
  uint64_t memory_bytes = 0;
};
Machine this_machine();

uint64_t peak_resident_bytes();

struct Residence {
  uint64_t resident = 0, anonymous = 0, peak = 0;  // bytes; anonymous: of no file; peak: resident at most
};
Residence residence();

// Seconds of processor time that others than this process have used since the system started; 0 where that
// cannot be told.
double foreign_cpu_s();

}  // namespace invar
