#pragma once
// LineReader: lines from a descriptor, however long their pieces take to come. A value of one thread, which
// waits in next().

#include <optional>
#include <string>

#include "base/status.h"

namespace invar {

class LineReader {
 public:
  LineReader(int fd, size_t most) : fd_(fd), most_(most) {}

  // Without its line feed; nothing: the end. A line of more than `most` bytes is an error (kInvalidArgument),
  // and the next call goes on behind it.
  Result<std::optional<std::string>> next();

 private:
  const int fd_;
  const size_t most_;
  std::string unread_;
  bool ended_ = false;
};

}  // namespace invar
