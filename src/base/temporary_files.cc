#include "base/temporary_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <set>

namespace invar {
namespace {

struct Names {
  std::mutex mutex;
  std::set<std::string> names;
};

// Never destroyed: threads may still end files while static objects go away.
Names& all() {
  static Names& instance = *new Names;
  return instance;
}

}  // namespace

int open_temporary(const std::string& path, int flags, mode_t mode) {
  Names& a = all();
  // Made and noted in one: between the two nobody removes the names and leaves.
  const std::lock_guard lock(a.mutex);
  const int fd = ::open(path.c_str(), flags, mode);
  const int error = errno;
  if (fd >= 0) a.names.insert(path);
  errno = error;
  return fd;
}

void note_temporary(const std::string& path) {
  Names& a = all();
  const std::lock_guard lock(a.mutex);
  a.names.insert(path);
}

void forget_temporary(const std::string& path) {
  Names& a = all();
  const std::lock_guard lock(a.mutex);
  a.names.erase(path);
}

void exit_without_temporaries(int code) {
  Names& a = all();
  const std::lock_guard lock(a.mutex);  // held to the end: nobody makes another one
  for (const std::string& name : a.names)
    ::unlink(name.c_str());
  ::_exit(code);
}

}  // namespace invar
