// The program: finds the verb and hands it the arguments.

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "base/text_distance.h"
#include "cli/verbs.h"
#include "tensor/numerics_version.h"

namespace invar {
namespace {

void print_help() {
  fmt::print(
      "Invar: language models on CPUs; the same prompt, seed and model give the same answer, always.\n\n"
      "Usage: invar VERB [flags] [arguments]\n\nVerbs:\n");
  for (const Verb& v : verbs())
    fmt::print("  {:<12} {}\n", v.name, v.summary);
  // The start script shows the same before there is a program: packaging/overview.txt.
  fmt::print(
      "\nIn a clone of the repository, ./invar builds what has changed and then runs the program. It has one "
      "verb more:\n"
      "  {:<12} build and run the tests (./invar test --help)\n"
      "\nExamples:\n"
      "  invar run \"Why is the sky blue?\"\n"
      "  cat notes.txt | invar run \"Summarize this:\"\n"
      "  invar inspect model.gguf --tensors\n\n"
      "invar VERB --help explains the flags of a verb; invar --version prints the version.\n",
      "test");
}

int dispatch(const std::vector<std::string>& args) {
  if (args.empty()) {
    print_help();
    return kExitUsage;
  }
  const std::string& name = args[0];
  if (name == "--help" || name == "-h" || name == "help") {
    print_help();
    return 0;
  }
  if (name == "--version" || name == "version") {
    fmt::print("invar {}, numerics {}\n", INVAR_VERSION, kNumericsVersion);
    return 0;
  }
  std::vector<std::string> names = {"--help", "--version"};
  for (const Verb& v : verbs()) {
    if (name == v.name) return v.run(Arguments(args).subspan(1));
    names.emplace_back(v.name);
  }
  const std::string near = nearest_text(name, names);
  return fail_usage(invalid_argument(near.empty()
                                         ? fmt::format("unknown verb '{}'; see: invar --help", name)
                                         : fmt::format("unknown verb '{}'; did you mean {}?", name, near)));
}

}  // namespace
}  // namespace invar

int main(int argc, char** argv) {
  // A full disk or a file size limit is an error of the write that met it, not a signal.
  std::signal(SIGXFSZ, SIG_IGN);
  const int status = invar::dispatch({argv + 1, argv + argc});
  // What was printed must have arrived: a full disk or a closed descriptor is a failure of the whole command.
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && status == 0) {
    std::fputs("invar: standard output cannot be written (full, or closed)\n", stderr);
    return 1;
  }
  return status;
}
