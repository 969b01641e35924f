#include "cli/prompts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

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

Result<std::string> prompt_of_json(std::string_view line, const std::string& where) {
  boost::json::error_code error;
  const boost::json::value v = boost::json::parse({line.data(), line.size()}, error);
  if (error) return invalid_argument(fmt::format("{}: not JSON: {}", where, error.message()));
  const auto* object = v.if_object();
  const auto* prompt = object ? object->if_contains("prompt") : nullptr;
  if (prompt == nullptr || !prompt->is_string())
    return invalid_argument(fmt::format("{}: must be an object with a text \"prompt\"", where));
  return std::string(prompt->get_string());
}

}  // namespace

bool stdin_is_piped() {
  struct stat s;
  return ::fstat(STDIN_FILENO, &s) == 0 && (S_ISFIFO(s.st_mode) || S_ISREG(s.st_mode) || S_ISSOCK(s.st_mode));
}

Result<std::string> read_text(const std::string& path) {
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
    if (text.size() > kMaxPromptBytes) {
      ::close(fd);
      return invalid_argument(fmt::format("{}: more than {} of text", label, size_text(kMaxPromptBytes)));
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
    ASSIGN_OR_RETURN(std::string piped, read_text("-"));
    while (piped.ends_with('\n') || piped.ends_with('\r'))
      piped.pop_back();
    if (!piped.empty()) prompt = prompt.empty() ? std::move(piped) : prompt + "\n\n" + piped;
  }
  if (prompt.empty())
    return invalid_argument("no prompt: give it as an argument, pipe it in, or name a file with --file");
  return prompt;
}

Result<std::vector<std::string>> prompts_from_file(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_text(path));
  std::vector<std::string> prompts;
  std::optional<bool> json;
  size_t number = 0;
  for (const std::string_view line : lines_of(text)) {
    ++number;
    if (blank(line)) continue;
    const std::string where = fmt::format("{}: line {}", path, number);
    if (!json) json = prompt_of_json(line, where).ok();
    if (*json) {
      ASSIGN_OR_RETURN(std::string prompt, prompt_of_json(line, where));
      prompts.push_back(std::move(prompt));
    } else {
      prompts.emplace_back(line);
    }
    if (prompts.back().empty()) return invalid_argument(where + ": the prompt is empty");
  }
  if (prompts.empty()) return invalid_argument(path + ": no prompts in it");
  return prompts;
}

}  // namespace invar
