#include "cli/sse_reader.h"

#include <algorithm>

namespace invar {
namespace {

constexpr size_t kMaxEventBytes = size_t{256} << 20;

}  // namespace

Status SseReader::feed(std::string_view bytes, const OnEvent& on_event) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    line_ += bytes.substr(0, end);
    if (line_.size() + data_.size() > kMaxEventBytes) return corrupt("a stream with an endless event");
    if (end == std::string_view::npos) break;
    bytes.remove_prefix(end + 1);
    if (line_.ends_with('\r')) line_.pop_back();
    line(line_, on_event);
    line_.clear();
  }
  return {};
}

void SseReader::line(std::string_view text, const OnEvent& on_event) {
  constexpr std::string_view kData = "data:";
  if (text.empty()) {
    if (has_data_) on_event(data_);
    data_.clear();
    has_data_ = false;
  } else if (text.starts_with(kData)) {
    text.remove_prefix(kData.size());
    if (text.starts_with(' ')) text.remove_prefix(1);
    if (has_data_) data_ += '\n';
    data_ += text;
    has_data_ = true;
  }
}

}  // namespace invar
