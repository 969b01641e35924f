// The cuts that published files of byte-level tokenizers have, by the names of GGUF. bridge/ knows more names
// for the same; here is one for each.

#include <algorithm>
#include <string_view>

#include "cli/convert/gguf_tokenizer.h"

namespace invar {
namespace {

constexpr std::string_view kGpt2 =
    R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re";
constexpr std::string_view kDigit = R"re(\p{N})re";
constexpr std::string_view kThreeDigits =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n)re"
    R"re(]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr std::string_view kOneDigit =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s)re"
    R"re(*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr std::string_view kOneDigitMarks =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N})re"
    R"re(]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr std::string_view kO200k =
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'r)re"
    R"re(e|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\)re"
    R"re(p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+)re"
    R"re((?!\S)|\s+)re";
constexpr std::string_view kTekken =
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L})re"
    R"re(\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N})re"
    R"re(]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr std::string_view kDigitsInThrees = R"re(\p{N}{1,3})re";
constexpr std::string_view kCjkAndKana = R"re([一-龥぀-ゟ゠-ヿ]+)re";
constexpr std::string_view kDeepseekV3Words =
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[)re"
    R"re(\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

struct PreName {
  std::string_view name;
  std::vector<std::string_view> splits;
  bool nfc = false, ignore_merges = false;
};

const std::vector<PreName>& table() {
  static const std::vector<PreName> rows = {
      {"gpt-2", {kGpt2}},
      {"olmo", {kGpt2}, true, false},
      {"smollm", {kDigit, kGpt2}},
      {"command-r", {kDigit, kGpt2}, true, false},
      {"llama-bpe", {kThreeDigits}, false, true},
      {"dbrx", {kThreeDigits}},
      {"qwen2", {kOneDigit}, true, false},
      {"stablelm2", {kOneDigit}},
      {"qwen35", {kOneDigitMarks}, true, false},
      {"gpt-4o", {kO200k}, false, true},
      {"llama4", {kO200k}},
      {"tekken", {kTekken}, false, true},
      {"deepseek-v3", {kDigitsInThrees, kCjkAndKana, kDeepseekV3Words}},
  };
  return rows;
}

// Some files have line ends themselves where others have the escapes for them.
std::string with_escapes(const std::string& pattern) {
  std::string out;
  for (const char c : pattern)
    if (c == '\r')
      out += "\\r";
    else if (c == '\n')
      out += "\\n";
    else
      out += c;
  return out;
}

}  // namespace

std::string gguf_pre_name(std::vector<std::string> splits, bool nfc, bool ignore_merges) {
  std::ranges::transform(splits, splits.begin(), with_escapes);
  for (const PreName& row : table())
    if (row.nfc == nfc && row.ignore_merges == ignore_merges &&
        std::equal(row.splits.begin(), row.splits.end(), splits.begin(), splits.end()))
      return std::string(row.name);
  return "";
}

}  // namespace invar
