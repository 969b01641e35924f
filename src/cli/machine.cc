#include "cli/machine.h"

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

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
  return residence().peak;
}

Residence residence() {
  const auto bytes = [](const char* name) { return kilobytes(field("/proc/self/status", name)); };
  return {bytes("VmRSS"), bytes("RssAnon"), bytes("VmHWM")};
}

double foreign_cpu_s() {
  std::ifstream file("/proc/stat");
  std::string line, name;
  std::getline(file, line);
  std::istringstream words(line);
  double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, softirq = 0, steal = 0;
  if (!(words >> name >> user >> nice >> system >> idle >> wait >> irq >> softirq >> steal)) return 0;
  rusage own;
  if (::getrusage(RUSAGE_SELF, &own) != 0) return 0;
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + double(t.tv_usec) * 1e-6; };
  const double busy = (user + nice + system + irq + softirq + steal) / double(::sysconf(_SC_CLK_TCK));
  return busy - seconds(own.ru_utime) - seconds(own.ru_stime);
}

}  // namespace invar
