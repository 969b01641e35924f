#pragma once
// NewFile: a file that is written from front to back under a temporary name beside its own until finish(), so
// that the target is never half a file. Owned by one thread. Errors name the file and what the operating
// system said.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "base/temporary_files.h"

namespace invar {

class NewFile {
 public:
  // flag: where the path was given, for errors; "": it stood by itself. kKept: finish() is an error where the
  // name is taken by then.
  explicit NewFile(std::string path, std::string flag = "", Existing existing = Existing::kReplaced)
      : path_(std::move(path)), flag_(std::move(flag)), existing_(existing) {}
  ~NewFile();  // removes an unfinished file
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  Status open();
  bool is_open() const { return file_ != nullptr; }
  Status write(std::string_view bytes);
  Status write(std::span<const std::byte> bytes) {
    return write(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  // What has been written is in the file of this name, which is `bytes` long, with zeros for what is to come.
  Result<std::string> preview(uint64_t bytes);
  Status finish();
  uint64_t bytes() const { return position_; }  // written so far

 private:
  Status failed(const char* what) const;

  std::string path_, flag_, temporary_;
  Existing existing_;
  uint64_t position_ = 0;
  std::FILE* file_ = nullptr;
};

}  // namespace invar
