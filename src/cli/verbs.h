#pragma once
// The verbs of the command line: one file in cli/verbs/ and one line in the table of verbs.cc each. A verb
// gets the arguments after its name and returns the exit code: 0, 1 (failed), 2 (wrong usage), 130
// (interrupted).

#include <optional>
#include <span>
#include <string>

#include "base/status.h"

namespace invar {

class Flags;

using Arguments = std::span<const std::string>;

struct Verb {
  const char* name;
  const char* summary;
  int (*run)(Arguments args);
};

std::span<const Verb> verbs();

int serve_verb(Arguments args);
int run_verb(Arguments args);
int chat_verb(Arguments args);
int inspect_verb(Arguments args);
int logits_verb(Arguments args);
int tokenize_verb(Arguments args);
int bench_verb(Arguments args);
int verify_verb(Arguments args);
int replay_verb(Arguments args);
int perplexity_verb(Arguments args);
int kl_verb(Arguments args);
int pull_verb(Arguments args);
int ls_verb(Arguments args);
int rm_verb(Arguments args);
int convert_verb(Arguments args);

inline constexpr int kExitFailed = 1, kExitUsage = 2, kExitInterrupted = 130;

// Prints "invar: message" on stderr and returns the exit code.
int fail(const Status& status);
int fail_usage(const Status& status);

// Parses; when the verb is to end here (help was printed, or wrong usage), its exit code.
std::optional<int> parse_or_end(Flags& flags, Arguments args);

}  // namespace invar
