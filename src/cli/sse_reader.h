#pragma once
// SseReader: the events of a text/event-stream, from bytes that arrive in any pieces. A value of one thread.

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace invar {

class SseReader {
 public:
  using OnEvent = std::function<void(std::string_view data)>;

  // Calls back for each event that these bytes complete; comments are left out, lines of data are joined by
  // line feeds. An error: the stream has an endless line.
  Status feed(std::string_view bytes, const OnEvent& on_event);

 private:
  void line(std::string_view text, const OnEvent& on_event);

  std::string line_, data_;
  bool has_data_ = false;
};

}  // namespace invar
