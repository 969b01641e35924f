// tokenizer.json of the kind Unigram as GGUF's "t5". GGUF says four things about a text: a table of
// replacements, whether runs of blanks and those around it go, and whether one comes in front.

#include <fmt/format.h>

#include <boost/json.hpp>

#include "base/base64.h"
#include "base/quote.h"
#include "cli/convert/tokenizer_json.h"
#include "text/gguf_vocab.h"

namespace invar {
namespace {

namespace json = boost::json;

// Of ids without a piece, and of tokens that are not of the model's vocabulary: as in other programs' files.
constexpr float kUnusedScore = -10000, kAddedScore = -1000;

Status add_pieces(const json::object& model, GgufTokenizer& t) {
  const json::value* vocab = model.if_contains("vocab");
  if (vocab == nullptr || !vocab->is_array())
    return corrupt("tokenizer.json: model.vocab is missing or no list");
  const bool has_bytes = flag_at(model, "byte_fallback");
  int64_t id = 0;
  for (const json::value& entry : vocab->get_array()) {
    const json::array* pair = entry.if_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() || !(*pair)[1].is_number())
      return corrupt(fmt::format("tokenizer.json: model.vocab[{}] is no piece with its score", id));
    const json::string& piece = (*pair)[0].get_string();
    const bool is_byte = has_bytes && piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with('>');
    const json::value place = id;
    RETURN_IF_ERROR(put_token(t, piece, &place, is_byte ? text::kByte : text::kNormal));
    t.scores[static_cast<size_t>(id)] = static_cast<float>((*pair)[1].to_number<double>());
    ++id;
  }
  return {};
}

Status read_unknown(const json::object& model, GgufTokenizer& t) {
  const json::value* id = model.if_contains("unk_id");
  if (id == nullptr || !id->is_int64() || id->get_int64() < 0 || id->get_int64() >= int64_t(t.tokens.size()))
    return refuse_tokenizer("model.unk_id is none of its ids, and GGUF's form of Unigram needs one");
  t.types[static_cast<size_t>(id->get_int64())] = text::kUnknown;
  t.set_id("tokenizer.ggml.unknown_token_id", static_cast<int32_t>(id->get_int64()));
  return {};
}

Status read_rules(const json::object& file, GgufTokenizer& t) {
  const json::object *normalizer = object_at(file, "normalizer"), *cut = object_at(file, "pre_tokenizer");
  if (!has_only(normalizer, {"Precompiled", "Replace", "Strip", "Prepend"}))
    return refuse_tokenizer("GGUF has no words for its normalizer, " + shown_at(file, "normalizer"));
  if (!has_only(cut, {"Metaspace", "WhitespaceSplit"}))
    return refuse_tokenizer("GGUF has no words for its pre_tokenizer, " + shown_at(file, "pre_tokenizer"));
  if (const json::object* table = find_step(normalizer, "Precompiled")) {
    const auto bytes = base64_bytes(text_at(*table, "precompiled_charsmap"));
    if (!bytes) return corrupt("tokenizer.json: normalizer: precompiled_charsmap is not base64");
    t.charsmap = *bytes;
  }
  t.remove_extra_whitespaces = find_step(normalizer, "Strip") != nullptr ||
                               find_step(normalizer, "Replace") != nullptr ||
                               find_step(cut, "WhitespaceSplit") != nullptr;
  t.space_prefix = prefixes_a_blank(file);
  return {};
}

}  // namespace

Result<GgufTokenizer> unigram_vocabulary(const json::object& file, const json::object& model, int32_t rows) {
  GgufTokenizer t = unused_vocabulary(rows);
  t.model = "t5";
  t.pre = "default";
  t.scores.assign(t.tokens.size(), kUnusedScore);
  RETURN_IF_ERROR(add_pieces(model, t));
  RETURN_IF_ERROR(for_each_added(file, [&](std::string_view token, const json::value* id, bool special) {
    RETURN_IF_ERROR(put_token(t, token, id, special ? text::kControl : text::kUserDefined));
    float& score = t.scores[static_cast<size_t>(id->get_int64())];
    if (score == kUnusedScore) score = kAddedScore;
    return Status();
  }));
  RETURN_IF_ERROR(read_unknown(model, t));
  RETURN_IF_ERROR(read_rules(file, t));
  return t;
}

}  // namespace invar
