#include "server/request_log_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <unordered_map>

#include "api/json_text.h"
#include "base/base64.h"
#include "server/request_head.h"

namespace invar::server {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr size_t kBlockBytes = 64 << 10;
constexpr double kMaxCount = 1e15, kMaxStatus = 999;

std::string text_of(const json::object& line, std::string_view name) {
  const json::value* value = line.if_contains(json::string_view(name.data(), name.size()));
  if (value != nullptr && value->is_string()) return std::string(value->get_string());
  const std::string encoded_name = std::string(name) + "64";
  value = line.if_contains(encoded_name);
  if (value == nullptr || !value->is_string()) return "";
  return base64_bytes(std::string(value->get_string())).value_or("");
}

// From 0 to `max`.
double number_of(const json::object& line, std::string_view name, double max) {
  const json::value* value = line.if_contains(json::string_view(name.data(), name.size()));
  if (value == nullptr || !value->is_number()) return 0;
  return std::clamp(value->to_number<double>(), 0.0, max);
}

// False: not a request line and fields.
bool parse_head(std::string_view head, LoggedRequest& request) {
  const size_t end = head.find("\r\n");
  const std::string_view first = head.substr(0, end);
  const size_t space = first.find(' '), last = first.rfind(' ');
  if (end == std::string_view::npos || space == std::string_view::npos || last <= space) return false;
  request.method = first.substr(0, space);
  request.target = first.substr(space + 1, last - space - 1);
  head.remove_prefix(end + 2);
  while (!head.empty()) {
    const size_t line_end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, line_end);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return false;
    request.fields.emplace_back(to_lower(line.substr(0, colon)), std::string(trim(line.substr(colon + 1))));
    head.remove_prefix(std::min(head.size(), line_end + 2));
  }
  return true;
}

class Reader {
 public:
  Status read(const std::string& path, size_t max_line_bytes) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return io_error(fmt::format("{}: cannot be read", path));
    std::string block(kBlockBytes, '\0'), line;
    uint64_t number = 1;
    while (file.read(block.data(), std::streamsize(block.size())) || file.gcount() > 0) {
      std::string_view rest(block.data(), size_t(file.gcount()));
      while (!rest.empty()) {
        const size_t end = rest.find('\n');
        line.append(rest.substr(0, end));
        if (line.size() > max_line_bytes)
          return invalid_argument(fmt::format("{}: line {} has more than {} bytes, so this is no request log",
                                              path, number, max_line_bytes));
        if (end == std::string_view::npos) break;
        rest.remove_prefix(end + 1);
        take_line(line);
        line.clear();
        ++number;
      }
    }
    if (file.bad()) return io_error(fmt::format("{}: cannot be read to its end", path));
    if (!line.empty()) take_line(line);
    return {};
  }

  LoggedRequests finish() {
    // What has no end in the log: the server was killed, or the file is not the last one.
    std::vector<LoggedRequest> open;
    for (auto& [id, request] : open_)
      open.push_back(std::move(request));
    std::sort(open.begin(), open.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    for (LoggedRequest& request : open)
      result_.requests.push_back(std::move(request));
    return std::move(result_);
  }

 private:
  void take_line(const std::string& line) {
    if (!take(line)) result_.damaged_lines++;
  }

  // False: damaged.
  bool take(const std::string& text) {
    const Result<json::value> parsed = api::parse_json(text);
    if (!parsed.ok() || !parsed->is_object()) return false;
    const json::object& line = parsed->get_object();
    const std::string kind = text_of(line, "t"), id = text_of(line, "id");
    if (kind == "lost") {
      result_.lost_lines += uint64_t(number_of(line, "count", kMaxCount));
      return true;
    }
    if (id.empty()) return false;
    if (kind == "request") {
      LoggedRequest request;
      request.id = id;
      request.time = text_of(line, "time");
      request.remote = text_of(line, "remote");
      request.body = text_of(line, "body");
      if (!parse_head(text_of(line, "head"), request)) return false;
      open_[id] = std::move(request);
      return true;
    }
    const auto found = open_.find(id);
    // Its beginning is in a file that is not read; nobody can send it again.
    if (found == open_.end()) return kind == "answer" || kind == "frame" || kind == "end";
    LoggedRequest& request = found->second;
    if (kind == "answer") {
      request.status = int(number_of(line, "status", kMaxStatus));
      request.content_type = text_of(line, "content_type");
      request.answer = text_of(line, "body");
    } else if (kind == "frame") {
      request.frames.push_back({number_of(line, "ms", kMaxCount), text_of(line, "data")});
    } else if (kind == "end") {
      request.outcome = text_of(line, "outcome");
      result_.requests.push_back(std::move(request));
      open_.erase(found);
    } else {
      return false;
    }
    return true;
  }

  LoggedRequests result_;
  std::unordered_map<std::string, LoggedRequest> open_;
};

}  // namespace

Result<LoggedRequests> read_request_log(const std::string& path, size_t max_line_bytes) {
  std::error_code ec;
  std::vector<std::string> files;
  if (fs::is_directory(path, ec)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(path, ec)) {
      if (entry.path().extension() == ".jsonl") files.push_back(entry.path().string());
    }
    // Numbers of different length: the shorter one is the smaller one.
    std::sort(files.begin(), files.end(), [](const std::string& a, const std::string& b) {
      return a.size() != b.size() ? a.size() < b.size() : a < b;
    });
    if (files.empty()) return not_found(fmt::format("{}: has no file of a request log (*.jsonl)", path));
  } else {
    files.push_back(path);
  }
  Reader reader;
  for (const std::string& file : files)
    RETURN_IF_ERROR(reader.read(file, max_line_bytes));
  return reader.finish();
}

}  // namespace invar::server
