#include "cli/chrome_trace.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/quote.h"

namespace invar {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;  // so that few steps meet the disk

const char* category(SpanKind kind) {
  constexpr const char* kNames[] = {"step",  "forward", "sampling", "part",   "phase",
                                    "tiles", "wait",    "socket",   "handler"};
  return kNames[size_t(kind)];
}

}  // namespace

Result<std::unique_ptr<ChromeTrace>> ChromeTrace::create(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return io_error(fmt::format("--trace {}: {}", path, std::strerror(errno)));
  std::setvbuf(file, nullptr, _IOFBF, kBufferBytes);
  std::unique_ptr<ChromeTrace> trace(new ChromeTrace(path, file));
  trace->write("[\n");
  set_trace_sink(trace.get());
  return trace;
}

ChromeTrace::~ChromeTrace() {
  set_trace_sink(nullptr);
  write(R"({"name":"process_name","ph":"M","pid":1,"args":{"name":"invar"}})"
        "\n]\n");
  if (std::fclose(file_) != 0) failed();
}

void ChromeTrace::write(std::string_view text) {
  if (!failed_ && std::fwrite(text.data(), 1, text.size(), file_) != text.size()) failed();
}

void ChromeTrace::failed() {
  if (!std::exchange(failed_, true))
    log_error("--trace {}: {}; the trace ends here", printable(path_), std::strerror(errno));
}

// Names are those of nodes and of this program: nothing in them has to be escaped.
void ChromeTrace::take(const TraceSpan& span) {
  static thread_local const int thread = ::gettid();
  char line[512];
  auto end =
      fmt::format_to_n(line, sizeof line,
                       R"({{"name":"{:.200}","cat":"{}","ph":"X","pid":1,"tid":{},"ts":{:.3f},"dur":{:.3f})",
                       span.name, category(span.kind), thread, double(span.begin_ns) * 1e-3,
                       double(span.end_ns - span.begin_ns) * 1e-3)
          .out;
  if (span.kind == SpanKind::kPhase)
    end = fmt::format_to_n(end, size_t(line + sizeof line - end),
                           R"(,"args":{{"rows":{},"bytes":{:.0f},"macs":{:.0f},"float_macs":{:.0f}}})",
                           span.work.rows, span.work.bytes, span.work.macs, span.work.float_macs)
              .out;
  end = fmt::format_to_n(end, size_t(line + sizeof line - end), "}},\n").out;
  const std::lock_guard lock(mutex_);
  write({line, size_t(end - line)});
}

}  // namespace invar
