#include "server/request_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>

#include "api/json_text.h"
#include "base/base64.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"
#include "server/background_queue.h"
#include "server/wall_time.h"

namespace invar::server {
namespace {

namespace fs = std::filesystem;

constexpr size_t kQueueBytes = 64 << 20;
constexpr std::string_view kPrefix = "requests-", kSuffix = ".jsonl";

struct Entry {
  enum Kind { kRequest, kAnswer, kStreamHead, kFrames, kEnd } kind;
  std::string id, head, body;
  double ms = 0;
  int status = 0;
  int64_t unix_ns = 0;
  std::string remote;
};

// 0: not one of our files.
uint64_t number_of(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return 0;
  const std::string digits = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  if (digits.empty() || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos)
    return 0;
  return std::stoull(digits);
}

void append_text_or_base64(std::string& out, std::string_view name, std::string_view bytes) {
  const bool text = is_utf8(bytes);
  fmt::format_to(std::back_inserter(out), ",\"{}{}\":", name, text ? "" : "64");
  if (text) {
    api::append_json_string(out, bytes);
  } else {
    fmt::format_to(std::back_inserter(out), "\"{}\"", base64_text(bytes));
  }
}

void begin_line(std::string& out, std::string_view kind, const Entry& entry) {
  fmt::format_to(std::back_inserter(out), "{{\"t\":\"{}\",\"id\":\"{}\"", kind, entry.id);
}

void append_entry(std::string& out, const Entry& e) {
  switch (e.kind) {
    case Entry::kRequest:
      begin_line(out, "request", e);
      fmt::format_to(std::back_inserter(out), ",\"time\":\"{}\",\"remote\":\"{}\"", utc_text(e.unix_ns),
                     e.remote);
      append_text_or_base64(out, "head", e.head);
      append_text_or_base64(out, "body", e.body);
      break;
    case Entry::kAnswer:
    case Entry::kStreamHead:
      begin_line(out, "answer", e);
      fmt::format_to(std::back_inserter(out), ",\"ms\":{:.3f},\"status\":{},\"content_type\":", e.ms,
                     e.status);
      api::append_json_string(out, e.head);
      if (e.kind == Entry::kAnswer) append_text_or_base64(out, "body", e.body);
      break;
    case Entry::kFrames:
      for (std::string_view rest = e.body; !rest.empty();) {
        const size_t end = rest.find("\n\n");
        const std::string_view frame = rest.substr(0, end == std::string_view::npos ? end : end + 2);
        rest.remove_prefix(frame.size());
        begin_line(out, "frame", e);
        fmt::format_to(std::back_inserter(out), ",\"ms\":{:.3f}", e.ms);
        append_text_or_base64(out, "data", frame);
        if (!rest.empty()) out += "}\n";
      }
      break;
    case Entry::kEnd:
      begin_line(out, "end", e);
      fmt::format_to(std::back_inserter(out), ",\"ms\":{:.3f},\"outcome\":", e.ms);
      api::append_json_string(out, e.head);
      break;
  }
  out += "}\n";
}

// The files, on the queue's thread.
class Files {
 public:
  Files(std::string dir, uint64_t file_bytes, uint64_t total_bytes)
      : dir_(std::move(dir)), file_bytes_(file_bytes), total_bytes_(total_bytes) {}
  ~Files() {
    if (file_ != nullptr) std::fclose(file_);
  }

  Status open() {
    std::error_code ec;
    const bool fresh = fs::create_directories(dir_, ec);
    if (!ec && fresh) fs::permissions(dir_, fs::perms::owner_all, ec);  // there are prompts in it
    if (ec) return io_error(fmt::format("--request-log {}: {}", dir_, ec.message()));
    for (const fs::directory_entry& found : fs::directory_iterator(dir_, ec)) {
      const uint64_t number = number_of(found.path().filename().string());
      if (number == 0) continue;
      const uint64_t bytes = found.file_size(ec);
      old_.push_back({number, ec ? 0 : bytes});
    }
    std::sort(old_.begin(), old_.end());
    number_ = old_.empty() ? 0 : old_.back().first;
    return next_file();
  }

  void write(std::string_view text) {
    if (file_ == nullptr) return;
    Status status;
    if (written_ >= file_bytes_) status = next_file();
    if (status.ok() &&
        (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fflush(file_) != 0)) {
      status = io_error(std::strerror(errno));
    }
    written_ += text.size();
    if (status.ok()) return;
    log_error("the request log is off from now on: {}", status.message());
    if (file_ != nullptr) std::fclose(file_);
    file_ = nullptr;
  }
  bool is_open() const { return file_ != nullptr; }

 private:
  std::string path_of(uint64_t number) const {
    return fmt::format("{}/{}{:06}{}", dir_, kPrefix, number, kSuffix);
  }

  Status next_file() {
    if (file_ != nullptr) {
      std::fclose(file_);
      old_.push_back({number_, written_});
    }
    uint64_t total = file_bytes_;
    for (const auto& [number, bytes] : old_)
      total += bytes;
    while (!old_.empty() && total > total_bytes_) {
      std::error_code ec;
      fs::remove(path_of(old_.front().first), ec);
      total -= old_.front().second;
      old_.pop_front();
    }
    number_++;
    written_ = 0;
    const int fd = ::open(path_of(number_).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    file_ = fd >= 0 ? ::fdopen(fd, "w") : nullptr;
    if (file_ == nullptr) {
      return io_error(
          fmt::format("--request-log: cannot make {}: {}", path_of(number_), std::strerror(errno)));
    }
    return {};
  }

  const std::string dir_;
  const uint64_t file_bytes_, total_bytes_;
  std::FILE* file_ = nullptr;
  uint64_t number_ = 0, written_ = 0;
  std::deque<std::pair<uint64_t, uint64_t>> old_;  // number and bytes, ascending
};

}  // namespace

struct RequestLog::Impl {
  Impl(const std::string& dir, uint64_t file_bytes, uint64_t total_bytes)
      : files(dir, file_bytes, total_bytes) {}

  void consume(std::vector<Entry>& entries, uint64_t lost) {
    if (!files.is_open()) return;
    std::string text;
    const auto write_out = [&] {
      files.write(text);
      text.clear();
    };
    if (lost > 0) text += fmt::format("{{\"t\":\"lost\",\"count\":{}}}\n", lost);
    for (Entry& entry : entries) {
      append_entry(text, entry);
      entry = {};
      if (text.size() > (64 << 10)) write_out();
    }
    if (!text.empty()) write_out();
  }

  void push(Entry entry) {
    const size_t bytes = sizeof(Entry) + entry.head.size() + entry.body.size();
    queue->push(std::move(entry), bytes);
  }

  Files files;
  std::unique_ptr<BackgroundQueue<Entry>> queue;
};

Result<std::unique_ptr<RequestLog>> RequestLog::open(const std::string& dir, uint64_t file_bytes,
                                                     uint64_t total_bytes) {
  auto impl = std::make_unique<Impl>(dir, std::max<uint64_t>(1, file_bytes), total_bytes);
  RETURN_IF_ERROR(impl->files.open());
  impl->queue = std::make_unique<BackgroundQueue<Entry>>(
      kQueueBytes,
      [raw = impl.get()](std::vector<Entry>& entries, uint64_t lost) { raw->consume(entries, lost); });
  return std::unique_ptr<RequestLog>(new RequestLog(std::move(impl)));
}

RequestLog::RequestLog(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RequestLog::~RequestLog() = default;

void RequestLog::request(const RequestRecord& record, std::string head, std::string_view body) {
  Entry entry{Entry::kRequest, record.id, std::move(head), std::string(body)};
  entry.unix_ns = record.unix_ns;
  entry.remote = record.remote;
  impl_->push(std::move(entry));
}

void RequestLog::answer(const RequestRecord& record, int64_t start_ns, std::string_view content_type,
                        std::string_view body) {
  const bool stream = content_type.starts_with("text/event-stream");
  impl_->push({stream ? Entry::kStreamHead : Entry::kAnswer, record.id, std::string(content_type),
               std::string(body), double(now_ns() - start_ns) * 1e-6, record.status});
}

void RequestLog::data(const RequestRecord& record, int64_t start_ns, std::string_view frames) {
  impl_->push({Entry::kFrames, record.id, "", std::string(frames), double(now_ns() - start_ns) * 1e-6});
}

void RequestLog::end(const RequestRecord& record) {
  impl_->push({Entry::kEnd, record.id, record.outcome, "", record.ms});
}

}  // namespace invar::server
