#pragma once
// For tests and fuzzing: the text side of a model. 256 byte tokens, four words, <|im_start|>, <|im_end|>
// (which ends answers) and <s>; 263 ids. The template is ChatML, and shows tools, tool calls and the variable
// "mood".

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "text/gguf_vocab.h"
#include "text/text_model.h"

namespace invar::api {

// The character that stands for a byte in byte-level vocabularies: printable bytes for themselves, the others
// from U+0100 on.
inline std::string byte_character(int byte) {
  const auto printable = [](int b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
  int code = byte;
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b)
      code += !printable(b);
  }
  if (code < 0x80) return std::string(1, char(code));
  return {char(0xC0 | code >> 6), char(0x80 | (code & 0x3F))};
}

inline constexpr char kChatMl[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if tools %}tools:{{ tools | tojson }}\n{% endif %}{% if mood %}mood:{{ mood }}\n{% endif %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

inline std::shared_ptr<const text::TextModel> make_tiny_model(bool add_bos) {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  for (int b = 0; b < 256; ++b)
    tokens.push_back(byte_character(b));
  const std::vector<std::string> merges = {"H e", "l l", "He ll", "Hell o"};
  for (const char* word : {"He", "ll", "Hell", "Hello"})
    tokens.emplace_back(word);
  types.assign(tokens.size(), 1);
  for (const char* control : {"<|im_start|>", "<|im_end|>", "<s>"}) {
    tokens.emplace_back(control);
    types.push_back(3);
  }
  text::GgufVocab vocab;
  vocab.model = "gpt2";
  vocab.pre = "gpt-2";
  vocab.tokens.assign(tokens.begin(), tokens.end());
  vocab.token_types = types;
  vocab.merges.assign(merges.begin(), merges.end());
  vocab.add_bos = add_bos;
  vocab.bos = uint32_t(tokens.size() - 1);
  vocab.eos = uint32_t(tokens.size() - 2);
  auto tokenizer = text::Tokenizer::from_gguf(vocab);
  CHECK(tokenizer.ok());
  text::TextModelParts parts;
  parts.tokenizer = *tokenizer;
  parts.templates = {{"default", kChatMl}};
  return std::make_shared<const text::TextModel>(text::make_text_model(std::move(parts)));
}

}  // namespace invar::api
