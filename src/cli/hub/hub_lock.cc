#include "cli/hub/hub_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/quote.h"

namespace invar {
namespace fs = std::filesystem;
namespace {

// Held for a whole pull. The others, one per file, are held only while that file is on its way.
constexpr const char* kRepoLock = "invar-pull.lock";

fs::path lock_folder(const HubCache& cache, const HubName& name) {
  return fs::path(cache.root()) / ".locks" / fs::path(cache.repo_folder(name)).filename();
}

Status failed(const fs::path& path, int error) {
  return io_error(fmt::format("{}: cannot be locked: {}; check the permissions of the cache",
                              printable(path.string()), std::strerror(error)));
}

Result<int> open_repo_lock(const fs::path& folder) {
  std::error_code ec;
  fs::create_directories(folder, ec);
  const fs::path path = folder / kRepoLock;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return failed(path, errno);
  return fd;
}

}  // namespace

HubLock::~HubLock() {
  for (const int fd : fds_)
    ::close(fd);
}

Result<HubLock> HubLock::for_download(const HubCache& cache, const HubName& name) {
  const fs::path folder = lock_folder(cache, name);
  HubLock lock;
  ASSIGN_OR_RETURN(const int fd, open_repo_lock(folder));
  lock.fds_.push_back(fd);
  while (::flock(fd, LOCK_SH) != 0)
    if (errno != EINTR) return failed(folder / kRepoLock, errno);
  return lock;
}

Result<HubLock> HubLock::for_removal(const HubCache& cache, const HubName& name) {
  const fs::path folder = lock_folder(cache, name);
  HubLock lock;
  ASSIGN_OR_RETURN(const int repo, open_repo_lock(folder));
  lock.fds_.push_back(repo);
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(folder, ec)) {
    if (entry.path().extension() != ".lock" || entry.path().filename() == kRepoLock) continue;
    if (const int fd = ::open(entry.path().c_str(), O_RDWR | O_CLOEXEC); fd >= 0) lock.fds_.push_back(fd);
  }
  for (const int fd : lock.fds_) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) continue;
    if (errno != EWOULDBLOCK) return failed(folder, errno);
    return Status(Code::kUnavailable,
                  fmt::format("{}: is being downloaded; wait for the end of that or stop it, then remove it",
                              name.repo()));
  }
  return lock;
}

}  // namespace invar
