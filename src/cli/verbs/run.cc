// invar run: answers in the terminal. One prompt streams; several from a file run in one batch and are
// printed in order. Ctrl-C cancels what is running and keeps what has been printed.

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/clock.h"
#include "base/size_text.h"
#include "base/utf8.h"
#include "cli/engine_flags.h"
#include "cli/interrupt.h"
#include "cli/machine.h"
#include "cli/prompts.h"
#include "cli/quote_piece.h"
#include "cli/sampling_flags.h"
#include "cli/text_setup.h"
#include "cli/verbs.h"
#include "text/detokenizer.h"

namespace invar {
namespace {

struct RunOptions {
  std::vector<std::string> prompt;
  std::string file, system;
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
                                 quote_piece(tokenizer.token_bytes(*event.token)));
  for (const TokenLogprob& a : event.alternatives)
    line += fmt::format("{} {} {} {:.5f}", &a == event.alternatives.data() ? "   alternatives:" : ",",
                        a.token, quote_piece(tokenizer.token_bytes(a.token)), a.logprob);
  return line;
}

// Prints one answer to its end.
Status print_answer(Stream& stream, const TextSetup& text, bool raw, bool logprobs, Timing& timing) {
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
    return event.finish == FinishReason::kError ? event.error : Status();
  }
}

void print_stats(const Timing& t, const Model& model, const Engine& engine, const EngineFlags& flags) {
  const EngineStats stats = engine.stats();
  const double prompt_s = t.first - t.start, decode_s = t.last - t.first;
  std::fflush(stdout);
  fmt::print(stderr, "prompt   {} tokens, first token after {:.3f} s ({:.1f} tokens/s)\n", t.prompt_tokens,
             prompt_s, prompt_s > 0 ? double(t.prompt_tokens) / prompt_s : 0);
  fmt::print(stderr, "answer   {} tokens in {:.3f} s ({:.1f} tokens/s)\n", t.generated, decode_s,
             decode_s > 0 ? double(t.generated - 1) / decode_s : 0);
  fmt::print(stderr, "memory   peak resident {}; packed weights {}; kv pool {}; scratch {}\n",
             size_text(peak_resident_bytes()), size_text(model.packed_bytes()),
             size_text(stats.kv_bytes_total), size_text(stats.scratch_bytes));
  fmt::print(stderr, "kernels  {}; kv {}; {} steps\n", flags.backend_name(), flags.options.kv, stats.steps);
}

Status check_utf8(const char* what, std::string_view text) {
  if (is_utf8(text)) return {};
  return invalid_argument(
      fmt::format("{}: not UTF-8; convert it first, for example with iconv -f latin1 -t utf8", what));
}

Result<std::shared_ptr<Stream>> submit(const std::string& prompt, const RunOptions& options,
                                       const SamplingFlags& sampling, const TextSetup& text,
                                       const Model& model, Engine& engine, Timing& timing) {
  RETURN_IF_ERROR(check_utf8("prompt", prompt));
  GenerateRequest request;
  sampling.apply(request);
  if (options.raw) {
    ASSIGN_OR_RETURN(request.prompt, encode_raw(text, prompt));
  } else {
    std::vector<ChatMessage> messages;
    if (!options.system.empty()) messages.push_back({"system", options.system});
    messages.push_back({"user", prompt});
    ASSIGN_OR_RETURN(request.prompt, encode_chat(text, messages));
  }
  for (const int32_t id : text.stop_ids) {
    if (id < model.info().vocab)
      request.stop_ids.push_back(id);  // tokenizers may know more ids than the output layer
  }
  timing.prompt_tokens += int64_t(request.prompt.size());
  return engine.submit(std::move(request));
}

Status run(const RunOptions& options, EngineFlags& engine_flags, SamplingFlags& sampling,
           Interrupt& interrupt) {
  std::vector<std::string> prompts;
  if (options.file.empty()) {
    ASSIGN_OR_RETURN(std::string prompt, prompt_from_arguments(options.prompt));
    prompts.push_back(std::move(prompt));
  } else {
    ASSIGN_OR_RETURN(prompts, prompts_from_file(options.file));
  }

  RETURN_IF_ERROR(check_utf8("--system", options.system));

  ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, engine_flags.load_model());
  ASSIGN_OR_RETURN(const TextSetup text, set_up_text(model->source()));
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, engine_flags.make_engine(model));

  if (engine_flags.verbose)
    fmt::print(stderr, "model {}; {}; kv {}; seed {}\n", model->info().name, engine_flags.backend_name(),
               engine_flags.options.kv, sampling.seed());

  Timing timing;
  std::vector<std::shared_ptr<Stream>> streams;
  for (size_t i = 0; i < prompts.size(); ++i) {
    auto stream = submit(prompts[i], options, sampling, text, *model, *engine, timing);
    if (!stream.ok())
      return prompts.size() > 1 ? stream.status().with_context(fmt::format("prompt {}", i + 1))
                                : stream.status();
    streams.push_back(std::move(*stream));
  }

  interrupt.on_signal([&streams] {
    for (const auto& stream : streams)
      stream->cancel();
  });
  timing.start = now_s();
  engine->start();
  Status first_error;
  for (size_t i = 0; i < streams.size(); ++i) {
    Status s;
    if (streams.size() > 1) s = write_out(fmt::format("{}==> prompt {} <==\n", i ? "\n" : "", i + 1));
    if (s.ok()) s = print_answer(*streams[i], text, options.raw, sampling.logprobs() >= 0, timing);
    if (s.ok()) continue;
    if (first_error.ok()) first_error = s;
    if (s.code() == Code::kIo) break;  // nobody reads on
  }
  interrupt.on_signal(nullptr);
  if (options.stats) print_stats(timing, *model, *engine, engine_flags);
  if (interrupt.seen()) return {Code::kCancelled, "interrupted"};
  return first_error;
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
             "several prompts: one per line, or JSON lines {\"prompt\": \"...\"}");
  flags.text("--system", &options.system, "TEXT", "a system message before the prompt");
  flags.on("--raw", &options.raw, "continue the prompt itself, without the model's chat template");
  flags.on("--stats", &options.stats, "print speed and memory on standard error at the end");
  sampling.declare(flags);
  engine.declare(flags);
  flags.note("Exit code: 0 answered, 1 failed, 2 wrong usage, 130 interrupted.");
  if (const auto end = parse_or_end(flags, args)) return *end;
  if (!options.file.empty() && !options.prompt.empty())
    return fail_usage(invalid_argument("give either a prompt or --file, not both"));
  if (options.raw && !options.system.empty())
    return fail_usage(
        invalid_argument("--system needs the chat template; leave out --raw or put the text in front"));

  if (const Status s = sampling.finish(); !s.ok()) return fail_usage(s);

  Interrupt interrupt;
  if (const Status s = run(options, engine, sampling, interrupt); !s.ok()) return fail(s);
  return 0;
}

}  // namespace invar
