#include "cli/verbs.h"

#include <cstdio>

#include "base/quote.h"
#include "cli/flags.h"

namespace invar {
namespace {

// A message can quote paths, names of a file, or what a chat template raised.
constexpr size_t kMessageBytes = 800;

constexpr Verb kVerbs[] = {
    {"serve", "answer many clients over HTTP, as the OpenAI API does", serve_verb},
    {"run", "answer prompts in the terminal", run_verb},
    {"chat", "talk with a model in the terminal", chat_verb},
    {"inspect", "show what is in a model file and whether it can run", inspect_verb},
    {"logits", "write the logits of a token sequence to a file", logits_verb},
    {"tokenize", "turn text into token ids and back", tokenize_verb},
    {"bench", "measure prompt and decode speed", bench_verb},
    {"verify", "replay a request and compare the bits with its receipt", verify_verb},
    {"replay", "send the requests of a log again and compare the answers", replay_verb},
    {"perplexity", "measure how well a model predicts a text", perplexity_verb},
    {"kl", "measure how far two models, formats or settings are apart on a text", kl_verb},
    {"convert", "write a model in other tensor types, and measure what that costs", convert_verb},
    {"pull", "fetch a model from a hub into the cache", pull_verb},
    {"ls", "list the models that are on this machine", ls_verb},
    {"rm", "remove models from the cache", rm_verb},
};

}  // namespace

std::span<const Verb> verbs() {
  return kVerbs;
}

int fail(const Status& status) {
  std::fflush(stdout);
  std::fprintf(stderr, "invar: %s\n", printable_within(status.message(), kMessageBytes).c_str());
  return status.code() == Code::kCancelled ? kExitInterrupted : kExitFailed;
}

int fail_usage(const Status& status) {
  fail(status);
  return kExitUsage;
}

std::optional<int> parse_or_end(Flags& flags, Arguments args) {
  const auto parsed = flags.parse(args);
  if (!parsed.ok()) return fail_usage(parsed.status());
  if (*parsed) return std::nullopt;
  std::fputs(flags.help().c_str(), stdout);
  return 0;
}

}  // namespace invar
