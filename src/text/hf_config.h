#pragma once
// Hugging Face tokenizer_config.json: the texts of special tokens, whether to add them, and the chat
// templates. A plain value; errors name the key.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace invar::text {

// A model may carry several templates; "default" and "tool_use" have a meaning (chat_template.h).
struct NamedTemplate {
  std::string name;
  std::string source;
};

struct HfTokenizerConfig {
  // (key, text) of bos_token, eos_token, unk_token, pad_token and so on, those that are set.
  std::vector<std::pair<std::string, std::string>> special_tokens;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::vector<NamedTemplate> chat_templates;

  // "" when the token is not set.
  std::string_view special_token(std::string_view key) const;
};

// "" gives an empty config: the file is optional.
Result<HfTokenizerConfig> parse_hf_tokenizer_config(std::string_view json);

}  // namespace invar::text
