// invar replay: sends the requests of a log again and shows where the answers first differ.

#include <fmt/format.h>

#include <filesystem>

#include "base/quote.h"
#include "cli/interrupt.h"
#include "cli/log_replay.h"
#include "cli/target_flags.h"
#include "cli/verbs.h"

namespace invar {
namespace {

constexpr int kExitDiffer = 1, kExitNotCompared = 2;
constexpr size_t kShownBytes = 80;

int not_compared(const Status& status) {
  const int code = fail(status);
  return code == kExitInterrupted ? code : kExitNotCompared;
}

void print(size_t number, const server::LoggedRequest& logged, const ReplayOutcome& outcome) {
  fmt::print("{:>5}  {} {}  ", number, printable(logged.method, kShownBytes),
             printable(logged.target, kShownBytes));
  if (!outcome.skipped.empty()) {
    fmt::print("not compared: {}\n", outcome.skipped);
  } else if (!outcome.difference) {
    fmt::print("same: status {}{}{}\n", logged.status,
               outcome.streamed ? fmt::format(", {} frames", outcome.frames) : "",
               outcome.whole ? ""
                             : fmt::format(", as far as it was recorded ({})",
                                           logged.outcome.empty() ? "its end is not in the log"
                                                                  : printable(logged.outcome, kShownBytes)));
  } else {
    const AnswerTrace::Difference& d = *outcome.difference;
    fmt::print("differs: {}{}\n         recorded  {}\n         replayed  {}\n",
               outcome.streamed && d.frame > 0 ? fmt::format("frame {}, ", d.frame) : "",
               printable(d.field, 2 * kShownBytes), d.recorded, d.replayed);
  }
  std::fflush(stdout);
}

Result<server::LoggedRequests> read_log(const std::string& path) {
  std::error_code ec;
  if (std::filesystem::exists(path, ec) && !std::filesystem::is_regular_file(path, ec) &&
      !std::filesystem::is_directory(path, ec))
    return invalid_argument(path + ": neither a file nor a directory");  // it may have no end
  ASSIGN_OR_RETURN(server::LoggedRequests log, server::read_request_log(path));
  if (log.damaged_lines > 0)
    fmt::print(stderr, "invar: {}: {} lines are damaged and left out\n", printable(path), log.damaged_lines);
  if (log.lost_lines > 0)
    fmt::print(stderr, "invar: {}: the server left out {} lines when it wrote this\n", printable(path),
               log.lost_lines);
  if (log.requests.empty()) return not_found(path + ": no request of a request log is in it");
  return log;
}

int replay(const server::LoggedRequests& log, size_t only, ApiTarget& target) {
  size_t same = 0, different = 0, skipped = 0;
  for (size_t number = 1; number <= log.requests.size(); ++number) {
    if (only > 0 && number != only) continue;
    const server::LoggedRequest& logged = log.requests[number - 1];
    const auto outcome = replay_request(logged, target);
    if (!outcome.ok()) return not_compared(outcome.status().with_context(fmt::format("request {}", number)));
    print(number, logged, *outcome);
    ++(!outcome->skipped.empty() ? skipped : outcome->difference ? different : same);
  }
  fmt::print("{} the same, {} different, {} not compared\n", same, different, skipped);
  if (different > 0) return kExitDiffer;
  return same > 0 ? 0 : kExitNotCompared;
}

}  // namespace

int replay_verb(Arguments args) {
  TargetFlags target_flags;
  std::vector<std::string> files;
  int32_t only = 0;
  Flags flags("replay", "send the requests of a log again and compare the answers");
  flags.example("invar replay logs/requests-000001.jsonl --server http://127.0.0.1:8080",
                "of invar serve --request-log logs");
  flags.example("invar replay logs", "all files of a log, on the default model, without a server");
  flags.example("invar replay logs --request 7", "one of them");
  flags.rest("FILE", &files, "a file of a request log, or the directory with all of them");
  flags.section("Requests");
  flags.integer("--request", &only, "only the N-th request, from 1 (default: all)", 1);
  target_flags.declare(flags);
  flags.note(
      "Compared are the status and what the frames say together, not how tokens were cut into frames, nor "
      "ids, "
      "times and cached tokens. A request without a seed gets the one of its recorded receipt.");
  flags.note(
      "Exit code: 0 the answers agree, 1 one differs, 2 nothing was compared, or not all (wrong usage, no "
      "model, no server).");
  if (const auto end = parse_or_end(flags, args)) return *end;
  if (files.size() != 1) return fail_usage(invalid_argument("give one log: invar replay FILE"));
  if (const Status s = target_flags.finish(flags); !s.ok()) return fail_usage(s);

  Interrupt interrupt;
  const auto log = read_log(files[0]);
  if (!log.ok()) return not_compared(log.status());
  if (size_t(only) > log->requests.size())
    return fail_usage(
        invalid_argument(fmt::format("--request {}: the log has {} requests", only, log->requests.size())));
  const std::string model = recorded_model(*log);
  if (model.empty())
    target_flags.model.accept_any_model = true;
  else
    target_flags.model.names = {model};
  const auto target = target_flags.open();
  if (!target.ok()) return not_compared(target.status());
  interrupt.on_signal([&target] { (*target)->cancel(); });
  const int code = replay(*log, size_t(only), **target);
  interrupt.on_signal(nullptr);
  return code;
}

}  // namespace invar
