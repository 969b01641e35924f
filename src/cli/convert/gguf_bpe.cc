// tokenizer.json of byte pair encoding as GGUF's "gpt2", over bytes, and "llama", over text with scores.

#include <fmt/format.h>

#include <boost/json.hpp>
#include <string_view>
#include <unordered_map>

#include "cli/convert/tokenizer_json.h"
#include "text/gguf_vocab.h"

namespace invar {
namespace {

namespace json = boost::json;

// The patterns that a step of pre_tokenizer cuts by; false: it is none of those that GGUF names stand for.
bool add_splits(const json::object& step, std::vector<std::string>& splits) {
  const std::string_view type = text_at(step, "type");
  if (type == "Sequence") {
    const json::value* list = step.if_contains("pretokenizers");
    if (list == nullptr || !list->is_array()) return false;
    for (const json::value& inner : list->get_array())
      if (!inner.is_object() || !add_splits(inner.get_object(), splits)) return false;
    return true;
  }
  if (type == "Digits" && flag_at(step, "individual_digits")) {
    splits.emplace_back("\\p{N}");
    return true;
  }
  if (type == "ByteLevel" && !flag_at(step, "add_prefix_space")) {
    if (flag_at(step, "use_regex"))
      splits.emplace_back(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
    return true;
  }
  const json::object* pattern = object_at(step, "pattern");
  if (type != "Split" || pattern == nullptr || flag_at(step, "invert") ||
      text_at(step, "behavior") != "Isolated")
    return false;
  splits.emplace_back(text_at(*pattern, "Regex"));
  return !splits.back().empty();
}

Result<std::string> pre_name(const json::object& file, bool ignore_merges) {
  const json::object* normalizer = object_at(file, "normalizer");
  if (normalizer != nullptr && json::serialize(*normalizer) == R"({"type":"Sequence","normalizers":[]})")
    normalizer = nullptr;
  const bool nfc = normalizer != nullptr && text_at(*normalizer, "type") == "NFC";
  std::vector<std::string> splits;
  const json::object* step = object_at(file, "pre_tokenizer");
  if (step != nullptr && (normalizer == nullptr || nfc) && add_splits(*step, splits))
    if (std::string name = gguf_pre_name(splits, nfc, ignore_merges); !name.empty()) return name;
  return refuse_tokenizer(fmt::format("GGUF has no name known here for its normalizer and cut, {} and {}",
                                      shown_at(file, "normalizer"), shown_at(file, "pre_tokenizer")));
}

Status add_tokens(const json::object& file, const json::object& model, bool has_bytes, GgufTokenizer& t) {
  const json::object* vocab = object_at(model, "vocab");
  if (vocab == nullptr) return corrupt("tokenizer.json: model.vocab is missing or no object");
  for (const auto& [piece, id] : *vocab) {
    const std::string_view token(piece.data(), piece.size());
    const bool is_byte = has_bytes && token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
    RETURN_IF_ERROR(put_token(t, token, &id, is_byte ? text::kByte : text::kNormal));
  }
  const std::string_view unknown = text_at(model, "unk_token");
  return for_each_added(file, [&](std::string_view content, const json::value* id, bool special) {
    std::string token(content);
    // GGUF has whole pieces of text as they are in the text, with blanks.
    constexpr std::string_view kBlank = "\u2581";
    for (size_t at = 0; has_bytes && !special && (at = token.find(kBlank, at)) != std::string::npos;)
      token.replace(at, kBlank.size(), " ");
    return put_token(t, token, id,
                     !special                        ? text::kUserDefined
                     : has_bytes && token == unknown ? text::kUnknown
                                                     : text::kControl);
  });
}

Status add_merges(const json::object& model, GgufTokenizer& t) {
  const json::value* list = model.if_contains("merges");
  if (list == nullptr || !list->is_array())
    return corrupt("tokenizer.json: model.merges is missing or no list");
  for (const json::value& merge : list->get_array()) {
    if (merge.is_string()) {
      t.merges.emplace_back(merge.get_string());
    } else if (merge.is_array() && merge.get_array().size() == 2 && merge.get_array()[0].is_string() &&
               merge.get_array()[1].is_string()) {
      t.merges.push_back(fmt::format("{} {}", std::string_view(merge.get_array()[0].get_string()),
                                     std::string_view(merge.get_array()[1].get_string())));
    } else {
      return corrupt("tokenizer.json: an entry of model.merges is no pair of pieces");
    }
  }
  return {};
}

// SentencePiece files have a score per piece instead of merges: the sooner a piece is made, the higher.
void merges_to_scores(GgufTokenizer& t) {
  std::unordered_map<std::string, size_t> made;
  for (const std::string& merge : t.merges) {
    std::string piece = merge;
    if (const size_t blank = piece.find(' '); blank != std::string::npos) piece.erase(blank, 1);
    made.emplace(std::move(piece), made.size());
  }
  t.scores.assign(t.tokens.size(), -static_cast<float>(made.size() + 1));
  for (size_t i = 0; i < t.tokens.size(); ++i)
    if (const auto at = made.find(t.tokens[i]); at != made.end() && t.types[i] == text::kNormal)
      t.scores[i] = -static_cast<float>(at->second);
  t.merges.clear();
}

}  // namespace

Result<GgufTokenizer> bpe_vocabulary(const json::object& file, const json::object& model, int32_t rows) {
  GgufTokenizer t = unused_vocabulary(rows);
  const bool has_bytes = flag_at(model, "byte_fallback");
  RETURN_IF_ERROR(add_tokens(file, model, has_bytes, t));
  RETURN_IF_ERROR(add_merges(model, t));
  t.model = has_bytes ? "llama" : "gpt2";
  if (has_bytes) {
    t.pre = "default";
    t.space_prefix = prefixes_a_blank(file);
    merges_to_scores(t);
  } else {
    ASSIGN_OR_RETURN(t.pre, pre_name(file, flag_at(model, "ignore_merges")));
  }
  return t;
}

}  // namespace invar
