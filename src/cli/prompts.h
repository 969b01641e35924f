#pragma once
// Where prompts come from: arguments, standard input, a file. Main thread.

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace invar {

inline constexpr size_t kMaxTextBytes = size_t{64} << 20;    // of one file or pipe
inline constexpr size_t kMaxPromptBytes = size_t{16} << 20;  // of one prompt

// The arguments joined by blanks; piped standard input (a pipe, socket or file, not a terminal) follows after
// an empty line. At least one of the two must hold text, together at most kMaxPromptBytes. A byte order mark
// at the start of the pipe is skipped.
Result<std::string> prompt_from_arguments(std::span<const std::string> args);

struct FilePrompt {
  std::string where;         // "prompts.txt: line 3"
  Result<std::string> text;  // the error of this one line: no such JSON, empty, too long
};
// Several prompts: one per line, empty lines are skipped. A file is JSON lines, an object with a text
// "prompt" on each, when its name ends in .jsonl or its first line that is not empty starts with a brace;
// then every line must be. A byte order mark at the start is skipped. path "-" is standard input.
Result<std::vector<FilePrompt>> prompts_from_file(const std::string& path);

// Refuses a prompt of so many bytes that even the longest tokens of the vocabulary cannot fit into the
// context, so that nobody waits for it to be turned into tokens. Lets short ones pass unseen: templates and
// tokenizers may drop characters, and those are quick.
Status check_prompt_size(size_t bytes, const text::Tokenizer& tokenizer, int32_t context);

// A whole file or, for "-", standard input; at most `most` bytes are read.
Result<std::string> read_text(const std::string& path, size_t most = kMaxTextBytes);
bool stdin_is_piped();

}  // namespace invar
