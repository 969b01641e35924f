#pragma once
// ChromeTrace: spans as a file that chrome://tracing and Perfetto open: a track per thread, times in
// microseconds. A sink while it lives; written through a buffer, by whichever thread a span ends on.

#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"
#include "base/trace.h"

namespace invar {

class ChromeTrace final : public TraceSink {
 public:
  static Result<std::unique_ptr<ChromeTrace>> create(const std::string& path);
  ~ChromeTrace() override;  // ends the file
  void take(const TraceSpan& span) override;

 private:
  explicit ChromeTrace(std::FILE* file) : file_(file) {}

  std::mutex mutex_;
  std::FILE* const file_;
};

}  // namespace invar
