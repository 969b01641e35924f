#include "base/temporary_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
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

bool take_name(const std::string& temporary, const std::string& path, Existing existing) {
  if (existing == Existing::kKept) {
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0) return true;
    if (errno != EINVAL && errno != ENOSYS) return false;
    // A file system without that: a look just before is the next best.
    if (struct stat info{}; ::lstat(path.c_str(), &info) == 0) {
      errno = EEXIST;
      return false;
    }
  }
  return std::rename(temporary.c_str(), path.c_str()) == 0;
}

Status name_is_taken(const std::string& path) {
  return invalid_argument(
      path + ": was made by somebody else meanwhile and is left as it is; give --overwrite or another name");
}

void exit_without_temporaries(int code) {
  Names& a = all();
  const std::lock_guard lock(a.mutex);  // held to the end: nobody makes another one
  for (const std::string& name : a.names)
    ::unlink(name.c_str());
  ::_exit(code);
}

}  // namespace invar
