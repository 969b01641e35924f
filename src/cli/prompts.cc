#include "cli/prompts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/size_text.h"

namespace invar {
namespace {

bool blank(std::string_view s) {
  return s.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
  }
  return lines;
}

// Windows editors put it in front of UTF-8.
void skip_byte_order_mark(std::string_view& text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
}

bool is_json_lines(const std::string& path, const std::vector<std::string_view>& lines) {
  if (path.ends_with(".jsonl")) return true;
  const auto first = std::find_if_not(lines.begin(), lines.end(), blank);
  return first != lines.end() && (*first)[first->find_first_not_of(" \t")] == '{';
}

Result<std::string> prompt_of_json(std::string_view line) {
  boost::json::error_code error;
  const boost::json::value v = boost::json::parse({line.data(), line.size()}, error);
  if (error)
    return invalid_argument(
        fmt::format("not JSON ({}); every line must be an object {{\"prompt\": \"...\"}}, as the name .jsonl "
                    "or the brace at "
                    "the start of the file says",
                    error.message()));
  const auto* object = v.if_object();
  const auto* prompt = object ? object->if_contains("prompt") : nullptr;
  if (prompt == nullptr || !prompt->is_string())
    return invalid_argument("must be an object with a text \"prompt\"");
  return std::string(prompt->get_string());
}

Result<std::string> checked(Result<std::string> prompt) {
  if (prompt.ok() && prompt->empty()) return invalid_argument("the prompt is empty");
  if (prompt.ok() && prompt->size() > kMaxPromptBytes)
    return invalid_argument(
        fmt::format("the prompt has {} bytes, the most is {}; shorten it", prompt->size(), kMaxPromptBytes));
  return prompt;
}

}  // namespace

bool stdin_is_piped() {
  struct stat s;
  return ::fstat(STDIN_FILENO, &s) == 0 && (S_ISFIFO(s.st_mode) || S_ISREG(s.st_mode) || S_ISSOCK(s.st_mode));
}

Result<std::string> read_text(const std::string& path, size_t most) {
  const std::string label = path == "-" ? "standard input" : path;
  const int fd = path == "-" ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return io_error(fmt::format("{}: cannot open: {}", label, std::strerror(errno)));
  std::string text;
  char chunk[65536];
  while (true) {
    const ssize_t got = ::read(fd, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int error = errno;
      ::close(fd);
      return io_error(fmt::format("{}: cannot read: {}", label, std::strerror(error)));
    }
    if (got == 0) break;
    text.append(chunk, size_t(got));
    if (text.size() > most) {
      ::close(fd);
      return invalid_argument(fmt::format("{}: more than {} of text; shorten it", label, size_text(most)));
    }
  }
  ::close(fd);
  return text;
}

Result<std::string> prompt_from_arguments(std::span<const std::string> args) {
  std::string prompt = fmt::format("{}", fmt::join(args, " "));
  if (stdin_is_piped()) {
    // A pipe that nobody writes to would look like a hang.
    pollfd waiting = {STDIN_FILENO, POLLIN, 0};
    if (!prompt.empty() && ::poll(&waiting, 1, 1000) == 0)
      std::fputs(
          "invar: waiting for the end of standard input, which is part of the prompt; </dev/null leaves it "
          "out\n",
          stderr);
    ASSIGN_OR_RETURN(const std::string text, read_text("-", kMaxPromptBytes));
    std::string_view piped = text;
    skip_byte_order_mark(piped);
    while (piped.ends_with('\n') || piped.ends_with('\r'))
      piped.remove_suffix(1);
    if (!piped.empty()) prompt += (prompt.empty() ? "" : "\n\n") + std::string(piped);
  }
  if (prompt.empty())
    return invalid_argument("no prompt: give it as an argument, pipe it in, or name a file with --file");
  return prompt;
}

Result<std::vector<FilePrompt>> prompts_from_file(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_text(path));
  const std::string label = path == "-" ? "standard input" : path;
  std::string_view rest = text;
  skip_byte_order_mark(rest);
  const std::vector<std::string_view> lines = lines_of(rest);
  const bool json = is_json_lines(path, lines);
  std::vector<FilePrompt> prompts;
  size_t number = 0;
  for (const std::string_view line : lines) {
    ++number;
    if (blank(line)) continue;
    prompts.push_back({fmt::format("{}: line {}", label, number),
                       checked(json ? prompt_of_json(line) : Result<std::string>(std::string(line)))});
  }
  if (prompts.empty()) return invalid_argument(label + ": no prompts in it; write one per line");
  return prompts;
}

Status check_prompt_size(size_t bytes, const text::Tokenizer& tokenizer, int32_t context) {
  constexpr size_t kUnseen = 64 << 10;
  if (bytes <= kUnseen) return {};
  size_t longest = 1;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    longest = std::max(longest, tokenizer.token_bytes(id).size());
  if (bytes / longest <= size_t(context)) return {};
  return invalid_argument(fmt::format(
      "prompt: {} of text are at least {} tokens (none is longer than {} bytes) and do not fit into the "
      "context of {} tokens; shorten it",
      size_text(bytes), bytes / longest, longest, context));
}

}  // namespace invar
