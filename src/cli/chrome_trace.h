#pragma once
// ChromeTrace: spans as a file that chrome://tracing and Perfetto open: a track per thread, times in
// microseconds. A sink while it lives; written through a buffer, by whichever thread a span ends on. A disk
// that refuses is logged once, and the rest is dropped.

#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "base/trace.h"

namespace invar {

class ChromeTrace final : public TraceSink {
 public:
  static Result<std::unique_ptr<ChromeTrace>> create(const std::string& path);
  ~ChromeTrace() override;  // ends the file
  void take(const TraceSpan& span) override;

 private:
  ChromeTrace(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  void write(std::string_view text);  // under mutex_
  void failed();

  const std::string path_;
  std::mutex mutex_;
  std::FILE* const file_;
  bool failed_ = false;
};

}  // namespace invar
