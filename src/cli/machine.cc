#include "cli/machine.h"

#include <sys/utsname.h>

#include <fstream>

#include "base/usable_cores.h"

namespace invar {
namespace {

// "name<blanks>: value" in a file of /proc: the value of the first such line.
std::string field(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.find_first_not_of(" \t", name.size()) != colon) continue;
    const size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

uint64_t kilobytes(const std::string& text) {
  uint64_t n = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') break;
    n = n * 10 + uint64_t(c - '0');
  }
  return n * 1024;
}

}  // namespace

Machine this_machine() {
  Machine m;
  m.cpu = field("/proc/cpuinfo", "model name");
  utsname name;
  if (::uname(&name) == 0) m.system = std::string(name.sysname) + " " + name.release;
  m.cores = usable_cores().count;
  m.memory_bytes = kilobytes(field("/proc/meminfo", "MemTotal"));
  return m;
}

uint64_t peak_resident_bytes() {
  return kilobytes(field("/proc/self/status", "VmHWM"));
}

}  // namespace invar
