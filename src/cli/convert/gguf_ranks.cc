#include "cli/convert/gguf_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <set>
#include <unordered_map>

#include "base/quote.h"
#include "base/utf8.h"
#include "cli/convert/tokenizer_json.h"

namespace invar {
namespace {

namespace json = boost::json;
using text::Tokenizer;

// What a file says besides its tokens.
struct RankRules {
  std::string pre;
  int32_t special_first = 0, special_end = 0;  // ids of special tokens
  std::set<int32_t> whole;                     // those of them that are text like any other
};

// The letters that stand for bytes in vocabularies of this kind: printable ones for themselves.
std::array<std::string, 256> letters_of_bytes() {
  std::array<std::string, 256> letters;
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    const uint32_t c = printable ? byte : next++;
    if (c >= 0x80) letters[byte] += static_cast<char>(0xC0 | (c >> 6));
    letters[byte] += static_cast<char>(c >= 0x80 ? 0x80 | (c & 0x3F) : c);
  }
  return letters;
}

Result<RankRules> tekken_rules(std::string_view content) {
  json::error_code error;
  const json::value root = json::parse(content, error, {}, {.max_depth = 64});
  const json::object* file = root.if_object();
  const json::object* config = error || file == nullptr ? nullptr : object_at(*file, "config");
  if (config == nullptr) return corrupt("tekken.json: config is missing");
  RankRules rules;
  const std::string pattern(text_at(*config, "pattern"));
  for (const bool ignore_merges : {true, false})
    if (rules.pre.empty()) rules.pre = gguf_pre_name({pattern}, false, ignore_merges);
  if (rules.pre.empty())
    return unsupported(fmt::format(
        "tekken.json: GGUF has no name known here for config.pattern, {}; without DST the model is packed",
        printable_within(pattern, 400)));
  const json::value* places = config->if_contains("default_num_special_tokens");
  if (places == nullptr || !places->is_int64())
    return corrupt("tekken.json: config.default_num_special_tokens is missing");
  rules.special_end = static_cast<int32_t>(places->get_int64());
  const json::value* named = file->if_contains("special_tokens");
  if (named == nullptr || !named->is_array()) return rules;
  for (const json::value& entry : named->get_array()) {
    const json::object* token = entry.if_object();
    const json::value* rank = token == nullptr ? nullptr : token->if_contains("rank");
    if (rank != nullptr && rank->is_int64() && token->contains("is_control") &&
        !flag_at(*token, "is_control"))
      rules.whole.insert(static_cast<int32_t>(rank->get_int64()));
  }
  return rules;
}

// The model's own code cuts as Qwen 2 does, without its normalization.
RankRules qwen_rules(const Tokenizer& tokenizer) {
  RankRules rules{.pre = "stablelm2", .special_first = tokenizer.vocab_size(), .whole = {}};
  rules.special_end = rules.special_first;
  while (rules.special_first > 0 && tokenizer.is_control(rules.special_first - 1))
    --rules.special_first;
  return rules;
}

void add_merges(const Tokenizer& tokenizer, const RankRules& rules, GgufTokenizer& t) {
  const auto count = static_cast<int32_t>(std::min<size_t>(t.tokens.size(), size_t(tokenizer.vocab_size())));
  std::unordered_map<std::string_view, int32_t> ids;
  const auto is_special = [&](int32_t id) { return id >= rules.special_first && id < rules.special_end; };
  for (int32_t id = 0; id < count; ++id)
    if (!is_special(id)) ids.emplace(tokenizer.token_bytes(id), id);
  std::vector<std::pair<int32_t, int32_t>> cuts;
  for (int32_t id = 0; id < count; ++id) {
    const std::string_view token = is_special(id) ? std::string_view() : tokenizer.token_bytes(id);
    cuts.clear();
    for (size_t at = 1; at < token.size(); ++at) {
      const auto left = ids.find(token.substr(0, at)), right = ids.find(token.substr(at));
      if (left != ids.end() && right != ids.end()) cuts.emplace_back(left->second, right->second);
    }
    std::ranges::sort(cuts);
    for (const auto& [left, right] : cuts)
      t.merges.push_back(t.tokens[static_cast<size_t>(left)] + " " + t.tokens[static_cast<size_t>(right)]);
  }
}

}  // namespace

Result<GgufTokenizer> rank_vocabulary(std::string_view file_name, std::string_view content,
                                      const Tokenizer& tokenizer, int32_t rows) {
  RankRules rules = qwen_rules(tokenizer);
  if (file_name == "tekken.json") {
    ASSIGN_OR_RETURN(rules, tekken_rules(content));
  }
  GgufTokenizer t = unused_vocabulary(rows);
  t.model = "gpt2";
  t.pre = rules.pre;
  const auto letters = letters_of_bytes();
  for (int32_t id = 0; id < std::min(tokenizer.vocab_size(), rows); ++id) {
    const bool special = id >= rules.special_first && id < rules.special_end;
    std::string& token = t.tokens[static_cast<size_t>(id)];
    token.clear();
    for (const char byte : tokenizer.token_bytes(id))
      if (special)
        token += byte;
      else
        token += letters[static_cast<uint8_t>(byte)];
    t.types[static_cast<size_t>(id)] = !special                   ? text::kNormal
                                       : rules.whole.contains(id) ? text::kUserDefined
                                                                  : text::kControl;
  }
  add_merges(tokenizer, rules, t);
  return t;
}

Status check_whole_tokens(const Tokenizer& file, const Tokenizer& gguf) {
  for (int32_t id = 0; id < file.vocab_size(); ++id) {
    const std::string_view token = file.token_bytes(id);
    if (file.is_control(id) || !is_utf8(token)) continue;
    ASSIGN_OR_RETURN(const auto wanted, file.encode(token, text::Special::kPlain));
    ASSIGN_OR_RETURN(const auto got, gguf.encode(token, text::Special::kPlain));
    if (wanted != got)
      return unsupported(fmt::format(
          "{}: token {} does not come out of merges, which GGUF has instead of ranks; without DST the "
          "model is packed",
          quote(token), id));
  }
  return {};
}

}  // namespace invar
