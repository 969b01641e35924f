// invar run: answers in the terminal. One prompt streams; several from a file run in one batch and are
// printed in order. Ctrl-C cancels what is running and keeps what has been printed.

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "api/dry_breaker_cache.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/quote.h"
#include "base/size_text.h"
#include "base/utf8.h"
#include "cli/engine_flags.h"
#include "cli/interrupt.h"
#include "cli/machine.h"
#include "cli/prompts.h"
#include "cli/sampling_defaults.h"
#include "cli/sampling_flags.h"
#include "cli/text_setup.h"
#include "cli/verbs.h"
#include "text/detokenizer.h"

namespace invar {
namespace {

constexpr size_t kShownNameBytes = 60;  // a file says what its name is

struct RunOptions {
  std::vector<std::string> prompt;
  std::string file, system, chat_template;
  bool raw = false, stats = false;
};

struct Timing {
  double start = 0, first = 0, last = 0;  // first and last token of all answers
  int64_t prompt_tokens = 0, generated = 0;
};

Status write_out(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return {};
  return io_error(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
}

// `     198   -0.01230  "\n"    alternatives: 264 " a" -4.50000, ...`
std::string logprob_line(const TokenEvent& event, const text::Tokenizer& tokenizer) {
  std::string line = fmt::format("{:>8} {:>10.5f}  {}", *event.token, event.logprob,
                                 quote(tokenizer.token_bytes(*event.token), kQuoteAll));
  for (const TokenLogprob& a : event.alternatives)
    line += fmt::format("{} {} {} {:.5f}", &a == event.alternatives.data() ? "   alternatives:" : ",",
                        a.token, quote(tokenizer.token_bytes(a.token), kQuoteAll), a.logprob);
  return line;
}

// How an answer ended that had no error.
struct AnswerEnd {
  int64_t tokens = 0;
  bool cut = false;  // by -n or by the context
};

// Prints one answer to its end.
Result<AnswerEnd> print_answer(Stream& stream, const text::TextModel& text, bool raw, bool logprobs,
                               Timing& timing) {
  AnswerEnd end;
  // An answer is a text of its own; a continuation is not.
  text::Detokenizer detokenizer(text.tokenizer, {.at_text_start = !raw});
  std::string last_written = "\n";
  const auto put = [&](std::string piece) -> Status {
    if (piece.empty()) return {};
    RETURN_IF_ERROR(write_out(piece));
    last_written = std::move(piece);
    return {};
  };
  while (true) {
    const TokenEvent event = stream.next();
    std::string piece;
    if (event.token) {
      timing.last = now_s();
      ++end.tokens;
      if (timing.generated++ == 0) timing.first = timing.last;
      if (logprobs)
        piece = logprob_line(event, *text.tokenizer) + "\n";
      else
        detokenizer.push(*event.token, piece);
    }
    if (event.finish != FinishReason::kNone && !logprobs) detokenizer.finish(piece);
    RETURN_IF_ERROR(put(std::move(piece)));
    if (event.finish == FinishReason::kNone) continue;
    if (!last_written.ends_with('\n')) RETURN_IF_ERROR(write_out("\n"));
    if (event.finish == FinishReason::kError) return event.error;
    end.cut = event.finish == FinishReason::kLength;
    return end;
  }
}

// An answer that stops in the middle of a sentence looks like a fault of the model.
void say_if_cut(const AnswerEnd& end, size_t number, int32_t max_tokens) {
  if (!end.cut) return;
  std::fflush(stdout);
  const std::string which = number > 0 ? fmt::format("prompt {}: ", number) : "";
  if (end.tokens < max_tokens)
    fmt::print(stderr, "({}cut off after {} tokens: the context is full)\n", which, end.tokens);
  else
    fmt::print(stderr, "({}cut off after {} tokens; -n allows more)\n", which, max_tokens);
}

void print_stats(const Timing& t, const Model& model, const Engine& engine, const EngineFlags& flags) {
  const EngineStats stats = engine.stats();
  const double prompt_s = t.first - t.start, decode_s = t.last - t.first;
  std::fflush(stdout);
  fmt::print(stderr, "prompt   {} tokens, first token after {:.3f} s ({:.1f} tokens/s)\n", t.prompt_tokens,
             prompt_s, prompt_s > 0 ? double(t.prompt_tokens) / prompt_s : 0);
  fmt::print(stderr, "answer   {} tokens in {:.3f} s ({:.1f} tokens/s)\n", t.generated, decode_s,
             decode_s > 0 ? double(t.generated - 1) / decode_s : 0);
  fmt::print(
      stderr,
      "memory   peak resident {}; packed weights {}; kv pool {} of address space, reserved and used as "
      "it fills; scratch {}\n",
      size_text(peak_resident_bytes()), size_text(model.packed_bytes()), size_text(stats.kv_bytes_total),
      size_text(stats.scratch_bytes));
  fmt::print(stderr, "kernels  {}; kv {}; {} steps\n", flags.backend_name(), flags.options.kv, stats.steps);
}

Status check_utf8(const char* what, std::string_view text) {
  if (is_utf8(text)) return {};
  return invalid_argument(
      fmt::format("{}: not UTF-8; convert it first, for example with iconv -f latin1 -t utf8", what));
}

Result<std::shared_ptr<Stream>> submit(const std::string& prompt, const RunOptions& options,
                                       const SamplingFlags& sampling, const text::TextModel& text,
                                       Engine& engine, Timing& timing) {
  RETURN_IF_ERROR(check_utf8("prompt", prompt));
  RETURN_IF_ERROR(check_prompt_size(prompt.size(), *text.tokenizer, engine.context()));
  GenerateRequest request;
  sampling.apply(request);
  if (request.sampling.dry_multiplier > 0)
    request.sampling.dry_breakers = api::find_breakers(*text.tokenizer, api::default_breakers());
  if (options.raw) {
    ASSIGN_OR_RETURN(request.prompt, encode_raw(text, prompt));
  } else {
    std::vector<ChatMessage> messages;
    if (!options.system.empty()) messages.push_back({"system", options.system});
    messages.push_back({"user", prompt});
    ASSIGN_OR_RETURN(request.prompt, encode_chat(text, messages));
  }
  request.stop_ids.insert(request.stop_ids.end(), text.stop_ids.begin(), text.stop_ids.end());
  const auto tokens = int64_t(request.prompt.size());
  auto stream = engine.submit(std::move(request));
  if (stream.ok()) timing.prompt_tokens += tokens;
  return stream;
}

// Errors of single prompts of a file: each is one line on stderr, the other prompts go on.
class PromptErrors {
 public:
  void add(const std::string& where, const Status& status) {
    if (++count_ <= kShown) fail(status.with_context(where));
  }
  size_t count() const { return count_; }
  Status result(size_t prompts) const {
    if (count_ == 0) return {};
    return invalid_argument(fmt::format(
        "{} of {} prompts failed; {}", count_, prompts,
        count_ > kShown ? fmt::format("the first {} are named above", kShown) : "each is named above"));
  }

 private:
  static constexpr size_t kShown = 100;
  size_t count_ = 0;
};

Result<std::vector<FilePrompt>> read_prompts(const RunOptions& options) {
  if (!options.file.empty()) return prompts_from_file(options.file);
  ASSIGN_OR_RETURN(std::string prompt, prompt_from_arguments(options.prompt));
  std::vector<FilePrompt> one;
  one.push_back({"", std::move(prompt)});
  return one;
}

// Somebody used to other verbs may name the model without a flag.
bool is_model_path(const std::string& text) {
  namespace fs = std::filesystem;
  std::error_code ec;
  if (fs::is_directory(text, ec)) return fs::exists(text + "/config.json", ec);
  const bool named = text.ends_with(".gguf") || text.ends_with(".packed") || text.ends_with(".safetensors");
  return named && fs::is_regular_file(text, ec);
}

Status run(const RunOptions& options, EngineFlags& engine_flags, SamplingFlags& sampling,
           Interrupt& interrupt) {
  ASSIGN_OR_RETURN(const std::vector<FilePrompt> prompts, read_prompts(options));
  RETURN_IF_ERROR(check_utf8("--system", options.system));

  ASSIGN_OR_RETURN(const std::string chat_template, read_chat_template(options.chat_template));
  const auto has_template = [&](const text::TextModel& text) {
    return options.raw || text.chat_template ? Status() : text.template_error;
  };
  ASSIGN_OR_RETURN(const ModelWithText loaded, load_with_text(engine_flags, chat_template, has_template));
  const std::shared_ptr<const Model>& model = loaded.model;
  const text::TextModel& text = loaded.text;
  RETURN_IF_ERROR(sampling.check_vocabulary(model->info().vocab));
  const SamplingDefaults defaults =
      sampling_defaults(model->source(), {.temperature = SamplingFlags::kDefaultTemperature});
  for (const std::string& warning : defaults.warnings)
    log_warning("{}", printable_within(warning, 300));
  sampling.take_defaults(defaults.params);
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, engine_flags.make_engine(model));

  if (engine_flags.verbose)
    fmt::print(stderr, "model {}; {}; kv {}, pool {} (reserved address space, not memory in use)\n",
               printable_within(model->info().name, kShownNameBytes), engine_flags.backend_name(),
               engine_flags.options.kv, size_text(engine->stats().kv_bytes_total));
  if (engine_flags.verbose && !defaults.taken.empty())
    fmt::print(stderr, "the model's sampling: {}\n", defaults.taken);
  // A random seed cannot be asked for afterwards.
  const bool say_seed = sampling.temperature() > 0 && !sampling.seed_given() && ::isatty(STDERR_FILENO) == 1;
  if (engine_flags.verbose || say_seed)
    fmt::print(stderr, "temperature {}, seed {}\n", sampling.temperature(), sampling.seed());

  const bool several = prompts.size() > 1;
  Timing timing;
  PromptErrors errors;
  std::vector<std::shared_ptr<Stream>> streams(prompts.size());  // null: the prompt is refused
  for (size_t i = 0; i < prompts.size(); ++i) {
    auto stream = prompts[i].text.ok() ? submit(*prompts[i].text, options, sampling, text, *engine, timing)
                                       : Result<std::shared_ptr<Stream>>(prompts[i].text.status());
    if (stream.ok())
      streams[i] = std::move(*stream);
    else if (several)
      errors.add(prompts[i].where, stream.status());
    else
      return prompts[i].where.empty() ? stream.status() : stream.status().with_context(prompts[i].where);
  }
  if (errors.count() == prompts.size()) return errors.result(prompts.size());

  interrupt.on_signal([&streams] {
    for (const auto& stream : streams)
      if (stream) stream->cancel();
  });
  timing.start = now_s();
  engine->start();
  Status broken;
  std::string separator;
  for (size_t i = 0; i < streams.size() && broken.ok(); ++i) {
    if (!streams[i]) continue;
    Status s;
    if (several) s = write_out(fmt::format("{}==> prompt {} <==\n", separator, i + 1));
    separator = "\n";
    if (s.ok()) {
      const auto end = print_answer(*streams[i], text, options.raw, sampling.logprobs() >= 0, timing);
      if (end.ok()) say_if_cut(*end, several ? i + 1 : 0, sampling.max_tokens());
      s = end.ok() ? Status() : end.status();
    }
    if (s.ok()) continue;
    if (s.code() == Code::kIo || !several)
      broken = s;  // nobody reads on
    else
      errors.add(prompts[i].where, s);
  }
  interrupt.on_signal(nullptr);
  if (options.stats) print_stats(timing, *model, *engine, engine_flags);
  if (interrupt.seen()) return {Code::kCancelled, "interrupted"};
  RETURN_IF_ERROR(broken);
  RETURN_IF_ERROR(model->wait_verified());
  return errors.result(prompts.size());
}

}  // namespace

int run_verb(Arguments args) {
  RunOptions options;
  EngineFlags engine;
  SamplingFlags sampling;
  Flags flags("run", "answer prompts in the terminal");
  flags.example("invar run \"Why is the sky blue?\"", "one answer, as it is made");
  flags.example("invar run --temp 0 --raw \"The capital of France is\"",
                "plain continuation, always the same");
  flags.example("cat notes.txt | invar run \"Summarize this:\"", "what is piped in follows the prompt");
  flags.example("invar run --file prompts.txt --seed 1", "one answer per line of the file, all in one batch");
  flags.rest("PROMPT...", &options.prompt, "the prompt; words are joined by blanks");
  flags.section("Prompt");
  flags.text("-f,--file", &options.file, "FILE",
             "several prompts: one per line, or JSON lines {\"prompt\": \"...\"} when the name ends in "
             ".jsonl or the "
             "first line starts with a brace");
  flags.text("--system", &options.system, "TEXT", "a system message before the prompt");
  flags.on("--raw", &options.raw, "continue the prompt itself, without the model's chat template");
  flags.text("--chat-template", &options.chat_template, "FILE",
             "a Jinja template instead of the model's own");
  flags.on("--stats", &options.stats, "print speed and memory on standard error at the end");
  sampling.declare(flags);
  engine.declare(flags);
  flags.note(
      "Exit code: 0 answered, 1 failed, 2 wrong usage, 130 interrupted. A bad prompt of a file is named with "
      "its line and the others are answered; then the exit code is 1.");
  if (const auto end = parse_or_end(flags, args)) return *end;
  if (!options.file.empty() && !options.prompt.empty())
    return fail_usage(invalid_argument("give either a prompt or --file, not both"));
  if (!options.prompt.empty() && is_model_path(options.prompt[0]))
    return fail_usage(
        invalid_argument(fmt::format("{} is a model, not a prompt: invar run --model {} \"...\"",
                                     shown_value(options.prompt[0]), shown_value(options.prompt[0]))));
  if (options.raw && !options.chat_template.empty())
    return fail_usage(
        invalid_argument("--chat-template: with --raw there is none; leave out one of the two"));
  if (options.raw && !options.system.empty())
    return fail_usage(
        invalid_argument("--system needs the chat template; leave out --raw or put the text in front"));

  if (const Status s = sampling.finish(); !s.ok()) return fail_usage(s);
  if (options.file.empty() && options.prompt.empty() && ::isatty(STDIN_FILENO) == 1)
    return fail_usage(invalid_argument(
        "no prompt: write one, as in invar run \"Why is the sky blue?\"; for a conversation: invar chat"));

  Interrupt interrupt;
  if (const Status s = run(options, engine, sampling, interrupt); !s.ok()) return fail(s);
  return 0;
}

}  // namespace invar
