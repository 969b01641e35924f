// invar chat: a conversation in the terminal, with a running server or with a model that it loads itself.
// Ctrl-C stops an answer; at the prompt the second one leaves. Answers go to standard output, everything else
// to standard error.

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "api/service.h"
#include "base/quote.h"
#include "base/utf8.h"
#include "cli/chat_session.h"
#include "cli/interrupt.h"
#include "cli/line_reader.h"
#include "cli/prompts.h"
#include "cli/sampling_flags.h"
#include "cli/target_flags.h"
#include "cli/verbs.h"

namespace invar {
namespace {

constexpr size_t kMaxErrorBytes = 600;
constexpr char kCommands[] =
    "/exit         leave (also Ctrl-D)\n"
    "/clear        begin a new conversation; the system message stays\n"
    "/system TEXT  what the model is told before everything; without TEXT: shows it\n"
    "/help         this list\n"
    "Ctrl-C stops an answer. A message that begins with a slash: write //.\n";

Status write_out(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return {};
  return io_error(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
}

class Chat {
 public:
  Chat(ApiTarget& target, ChatSession session, int32_t max_tokens, Interrupt& interrupt)
      : target_(target), session_(std::move(session)), max_tokens_(max_tokens), interrupt_(interrupt) {}

  // To the end of standard input or /exit. An error: nothing more can be read or written.
  Status run() {
    LineReader lines(STDIN_FILENO, kMaxPromptBytes);
    if (interactive_) std::fputs("/help shows the commands, Ctrl-D leaves\n", stderr);
    for (bool first = true;; first = false) {
      ask_for_a_line();
      auto line = lines.next();
      interrupt_.on_signal(nullptr);
      interrupt_.rearm();
      if (!line.ok()) {
        if (line.status().code() != Code::kInvalidArgument) return line.status();
        failed(line.status());
        continue;
      }
      if (!line->has_value()) {
        if (interactive_) std::fputc('\n', stderr);
        return {};
      }
      std::string_view text = **line;
      if (first) text = without_bom(text);
      if (text.find_first_not_of(" \t") == std::string_view::npos) continue;
      if (!is_utf8(text)) {
        failed(invalid_argument(
            "this line is not UTF-8; convert it first, for example with iconv -f latin1 -t utf8"));
        continue;
      }
      if (text == "/exit") return {};
      if (text.starts_with("//"))
        RETURN_IF_ERROR(turn(text.substr(1)));
      else if (text[0] == '/')
        command(text);
      else
        RETURN_IF_ERROR(turn(text));
    }
  }
  bool any_failed() const { return any_failed_; }

 private:
  void failed(const Status& status) {
    fail(status);
    any_failed_ = true;
  }

  void ask_for_a_line() {
    if (!interactive_) return;
    std::fputs("> ", stderr);
    // The terminal has thrown away what was typed.
    interrupt_.on_ctrl_c([] { std::fputs("\n(once more, or Ctrl-D, leaves)\n> ", stderr); });
  }

  void command(std::string_view text) {
    constexpr std::string_view kSystem = "/system";
    if (text == "/clear") {
      session_.clear();
      if (interactive_) std::fputs("(a new conversation)\n", stderr);
    } else if (text == "/help") {
      std::fputs(kCommands, stderr);
    } else if (text == kSystem) {
      fmt::print(stderr, "{}\n",
                 session_.system().empty() ? "(no system message)" : answer_for_terminal(session_.system()));
    } else if (text.starts_with("/system ")) {
      text.remove_prefix(kSystem.size());
      text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
      session_.set_system(std::string(text));
    } else {
      failed(invalid_argument(
          fmt::format("unknown command {}; /help shows them, and // begins a message with a slash",
                      printable_within(text.substr(0, text.find(' ')), 60))));
    }
  }

  // Asks and prints. Of a turn that failed the conversation knows nothing; a stopped answer counts as far as
  // it came.
  Status turn(std::string_view message) {
    ApiRequest request;
    request.target = "/v1/chat/completions";
    request.body = session_.request(message);
    ChatAnswer answer;
    Status broken, unwritten;
    interrupt_.on_ctrl_c([this] { target_.cancel(); });
    const auto reply = target_.send(request, [&](std::string_view bytes) {
      std::string fresh;
      if (broken.ok()) broken = answer.feed(bytes, fresh);
      if (fresh.empty() || !unwritten.ok()) return;
      unwritten = write_out(to_terminal_ ? answer_for_terminal(fresh) : fresh);
      if (!unwritten.ok()) target_.cancel();
    });
    interrupt_.on_signal(nullptr);
    const bool stopped = interrupt_.seen();
    interrupt_.rearm();
    target_.resume();
    RETURN_IF_ERROR(unwritten);
    if (!answer.text().empty()) RETURN_IF_ERROR(write_out("\n"));
    if (!stopped) {
      if (const Status s = judge(reply, broken, answer); !s.ok()) {
        // Without a server the lines of a file need not be tried one by one.
        if (s.code() == Code::kUnavailable && !reply.ok() && !interactive_) return s;
        failed(s);
        return {};
      }
      if (answer.cut()) hint_at_cut(answer);
    } else {
      std::fputs(answer.text().empty() ? "\n(stopped)\n" : "(stopped)\n", stderr);
      if (answer.text().empty()) return {};
    }
    session_.add_turn(std::string(message), answer.text());
    return {};
  }

  static Status judge(const Result<ApiReply>& reply, const Status& broken, const ChatAnswer& answer) {
    if (!reply.ok()) return reply.status();
    RETURN_IF_ERROR(broken);
    if (reply->status != 200) {
      const ApiErrorText error = api_error(reply->status, reply->body);
      const std::string message = printable_within(error.message, kMaxErrorBytes);
      if (error.code == "context_length_exceeded")
        return resource_exhausted(
            fmt::format("the context is full; /clear begins a new conversation ({})", message));
      if (reply->status == 401) return invalid_argument(fmt::format("{}; see --api-key", message));
      return invalid_argument(message);
    }
    if (!answer.error().empty()) return internal_error(printable_within(answer.error(), kMaxErrorBytes));
    if (reply->broken || !answer.ended())
      return Status(Code::kUnavailable, "the connection ended before the answer did");
    return {};
  }

  void hint_at_cut(const ChatAnswer& answer) const {
    if (answer.tokens() > 0 && answer.tokens() < max_tokens_)
      fmt::print(stderr, "(cut off: the context is full; /clear begins a new conversation)\n");
    else
      fmt::print(stderr, "(cut off after {} tokens; --max-tokens allows more)\n", max_tokens_);
  }

  ApiTarget& target_;
  ChatSession session_;
  const int32_t max_tokens_;
  Interrupt& interrupt_;
  const bool interactive_ = ::isatty(STDIN_FILENO) == 1;
  const bool to_terminal_ = ::isatty(STDOUT_FILENO) == 1;
  bool any_failed_ = false;
};

}  // namespace

int chat_verb(Arguments args) {
  TargetFlags target_flags;
  SamplingFlags sampling;
  std::string system;
  Flags flags("chat", "talk with a model in the terminal");
  flags.example("invar chat", "with the default model; /help shows the commands");
  flags.example("invar chat --system \"Answer in one sentence.\" --temp 0", "short, and always the same");
  flags.example("invar chat --server http://127.0.0.1:8080", "with a running invar serve");
  flags.example("printf 'My name is Ada.\\nWhat is my name?\\n' | invar chat", "each line is a message");
  flags.section("Conversation");
  flags.text("--system", &system, "TEXT", "what the model is told before everything");
  sampling.declare(flags, false);
  target_flags.declare(flags);
  flags.note(
      "Commands: /exit, /clear, /system TEXT, /help. Ctrl-C stops an answer; at the prompt the second one "
      "leaves. A seed holds for every answer; without one each gets its own.");
  flags.note(
      "Exit code: 0 at the end of standard input or after /exit, 1 failed (piped: also if one message did), "
      "2 "
      "wrong usage, 130 interrupted.");
  if (const auto end = parse_or_end(flags, args)) return *end;
  if (const Status s = target_flags.finish(flags); !s.ok()) return fail_usage(s);
  if (const Status s = sampling.finish(); !s.ok()) return fail_usage(s);
  if (!is_utf8(system)) return fail_usage(invalid_argument("--system: not UTF-8"));

  Interrupt interrupt;
  const auto target = target_flags.open();
  if (!target.ok()) return fail(target.status());
  if (const api::Service* service = (*target)->service()) {
    if (const Status s = sampling.check_vocabulary(service->vocab); !s.ok()) return fail(s);
  }
  GenerateRequest settings;
  sampling.apply(settings);
  ChatSession session(
      generation_members(settings, sampling.seed_given(), sampling.given_members(), sampling.links()));
  session.set_system(system);
  Chat chat(**target, std::move(session), settings.max_tokens, interrupt);
  if (const Status s = chat.run(); !s.ok()) return fail(s);
  return chat.any_failed() && ::isatty(STDIN_FILENO) != 1 ? kExitFailed : 0;
}

}  // namespace invar
