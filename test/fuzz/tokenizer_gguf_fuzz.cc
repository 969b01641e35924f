// libFuzzer target: any vocabulary as GGUF metadata gives it ends in an error or in a tokenizer that encodes
// a text. The input: a byte of switches, then lines "tTEXT" (token, its type from the byte behind t), "mTEXT"
// (merge), "eTEXT" (a text to encode). layers: text

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace invar::text;
  if (size == 0) return 0;
  const uint8_t flags = data[0];
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  GgufVocab vocab;
  constexpr std::string_view kPre[] = {"",          "default", "smollm",  "qwen2",
                                       "llama-bpe", "gpt-2",   "unknown", "tekken"};
  vocab.model = flags & 1 ? "llama" : "gpt2";
  vocab.pre = kPre[flags >> 1 & 7];
  std::vector<int32_t> types;
  std::vector<float> scores;
  std::vector<std::string_view> texts = {"a b\xC3\xA9 <s> 12"};
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.size() >= 2 && line[0] == 't') {
      types.push_back(line[1] - '0');
      scores.push_back(float(line[1]) - float(vocab.tokens.size()));
      vocab.tokens.push_back(line.substr(2));
    } else if (!line.empty() && line[0] == 'm') {
      vocab.merges.push_back(line.substr(1));
    } else if (!line.empty() && line[0] == 'e') {
      texts.push_back(line.substr(1));
    }
  }
  if ((flags & 16) == 0) vocab.token_types = types;
  if (vocab.model == "llama" || (flags & 32) != 0) vocab.scores = scores;
  vocab.add_bos = (flags & 64) != 0;
  vocab.bos = flags & 128 ? 1 : 1u << 31;
  vocab.eos = 2;
  const auto tokenizer = Tokenizer::from_gguf(vocab);
  if (!tokenizer.ok()) {
    CHECK(tokenizer.status().code() != invar::Code::kInternal);
    return 0;
  }
  for (const std::string_view text : texts) {
    const auto ids = (*tokenizer)->encode(text, flags & 64 ? Special::kParse : Special::kPlain);
    CHECK(ids.ok() || ids.status().code() != invar::Code::kInternal);
    if (!ids.ok()) continue;
    Detokenizer stream(*tokenizer, {.skip_control = false, .at_text_start = true});
    std::string out;
    for (const int32_t id : *ids)
      stream.push(id, out);
    stream.finish(out);
    const auto decoded = (*tokenizer)->reference_decode(*ids, true);
    CHECK(decoded.ok() || decoded.status().code() != invar::Code::kInternal);
  }
  return 0;
}
