#pragma once
// Files of byte strings by rank, tekken.json and *.tiktoken, as GGUF's "gpt2": its merges are all the ways to
// make a token of two, by rank.

#include <string_view>

#include "cli/convert/gguf_tokenizer.h"
#include "text/tokenizer.h"

namespace invar {

// tokenizer: what was made of this file.
Result<GgufTokenizer> rank_vocabulary(std::string_view file_name, std::string_view content,
                                      const text::Tokenizer& tokenizer, int32_t rows);
// The merges do not say whether every token comes out of them; this does.
Status check_whole_tokens(const text::Tokenizer& file, const text::Tokenizer& gguf);

}  // namespace invar
