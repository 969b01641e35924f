#pragma once
// Where prompts come from: arguments, standard input, a file. Main thread.

#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace invar {

inline constexpr size_t kMaxPromptBytes = size_t{256} << 20;

// The arguments joined by blanks; piped standard input (a pipe, socket or file, not a terminal) follows after
// an empty line. At least one of the two must hold text.
Result<std::string> prompt_from_arguments(std::span<const std::string> args);

// Several prompts: one per line, or JSON lines {"prompt": "..."} when the first line is such an object. Empty
// lines are skipped. path "-" is standard input.
Result<std::vector<std::string>> prompts_from_file(const std::string& path);

// A whole file or, for "-", standard input; at most kMaxPromptBytes.
Result<std::string> read_text(const std::string& path);
bool stdin_is_piped();

}  // namespace invar
