#include "cli/line_reader.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/size_text.h"

namespace invar {

Result<std::optional<std::string>> LineReader::next() {
  using Line = std::optional<std::string>;
  bool too_long = false;
  for (size_t searched = 0;;) {
    const size_t end = unread_.find('\n', searched);
    const bool whole = end != std::string::npos;
    too_long = too_long || (whole ? end : unread_.size()) > most_;
    if (whole || ended_) {
      if (!whole && unread_.empty() && !too_long) return Line();
      Line line = unread_.substr(0, end);
      unread_.erase(0, whole ? end + 1 : end);
      if (too_long)
        return invalid_argument(fmt::format("a line of more than {}; shorten it", size_text(most_)));
      if (line->ends_with('\r')) line->pop_back();
      return line;
    }
    if (too_long) unread_.clear();  // its end is still to come
    searched = unread_.size();
    char chunk[65536];
    const ssize_t got = ::read(fd_, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error(fmt::format("standard input: cannot read: {}", std::strerror(errno)));
    ended_ = got == 0;
    unread_.append(chunk, size_t(got));
  }
}

}  // namespace invar
