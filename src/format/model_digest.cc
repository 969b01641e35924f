#include "format/model_digest.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/hash.h"
#include "base/mapped_file.h"
#include "base/temporary_files.h"
#include "format/file_identity.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kSmallFile = 32 << 20;  // hashed every time: the identity would not be much cheaper
constexpr size_t kHeaderBytes = 1 << 20;    // of the identity: metadata lies in front

bool is_digest(const std::string& text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

// Whoever reads it sees the whole digest or no file. That it cannot be kept is no error.
void keep(const std::string& path, const std::string& digest) {
  std::error_code ec;
  fs::create_directories(fs::path(path).parent_path(), ec);
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  const int fd = open_temporary(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return;
  const bool written = ::write(fd, digest.data(), digest.size()) == ssize_t(digest.size());
  ::close(fd);
  if (!written || std::rename(temporary.c_str(), path.c_str()) != 0) ::unlink(temporary.c_str());
  forget_temporary(temporary);
}

Result<std::string> file_digest(const std::string& path, const std::string& folder) {
  std::error_code ec;
  std::string kept;
  if (!folder.empty() && fs::file_size(path, ec) > kSmallFile && !ec) {
    ASSIGN_OR_RETURN(const MappedFile map, MappedFile::open(path));
    kept = folder + "/" + file_identity(map, kHeaderBytes);
    map.drop(0, map.bytes().size());
    std::string text;
    if (std::ifstream(kept) >> text && is_digest(text)) return text;
  }
  ASSIGN_OR_RETURN(const Digest digest, sha256_file(path));
  std::string text = hex(digest);
  if (!kept.empty()) keep(kept, text);
  return text;
}

}  // namespace

Result<std::string> model_digest(const ModelSource& source, const std::string& cache_dir) {
  if (source.packed() != nullptr) return source.packed()->digest;
  const std::string folder = cache_dir.empty() ? "" : cache_dir + "/digests";
  const std::vector<std::string> files = source.files();
  if (files.size() == 1) return file_digest(files[0], folder);
  std::string lines;
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(const std::string digest, file_digest(file, folder));
    lines += fmt::format("{}  {}\n", digest, fs::path(file).filename().string());
  }
  return hex(sha256(lines));
}

std::string changed_digest(const std::string& digest, const std::string& change) {
  return hex(sha256(fmt::format("{}  {}\n", digest, change)));
}

}  // namespace invar
