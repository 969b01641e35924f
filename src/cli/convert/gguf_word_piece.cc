// tokenizer.json of the kind WordPiece as GGUF's "bert", which marks the pieces that begin a word instead of
// those that go on, and takes the rest for granted.

#include <boost/json.hpp>

#include "base/quote.h"
#include "cli/convert/tokenizer_json.h"
#include "text/gguf_vocab.h"

namespace invar {
namespace {

namespace json = boost::json;

constexpr std::string_view kGoesOn = "##";

Status check_rules(const json::object& file, const json::object& model) {
  const json::object* normalizer = object_at(file, "normalizer");
  if (normalizer == nullptr || text_at(*normalizer, "type") != "BertNormalizer" ||
      !flag_at(*normalizer, "clean_text") || !flag_at(*normalizer, "handle_chinese_chars"))
    return refuse_tokenizer("GGUF's form of WordPiece is for BertNormalizer, not for " +
                            shown_at(file, "normalizer"));
  const json::object* cut = object_at(file, "pre_tokenizer");
  if (cut == nullptr || text_at(*cut, "type") != "BertPreTokenizer")
    return refuse_tokenizer("GGUF's form of WordPiece is for BertPreTokenizer, not for " +
                            shown_at(file, "pre_tokenizer"));
  if (text_at(model, "continuing_subword_prefix") != kGoesOn)
    return refuse_tokenizer("GGUF's form of WordPiece is for pieces that go on with ##, not with " +
                            shown_at(model, "continuing_subword_prefix"));
  const json::value* letters = model.if_contains("max_input_chars_per_word");
  if (letters != nullptr && *letters != 100)
    return refuse_tokenizer("GGUF's form of WordPiece is for words of up to 100 letters, not of " +
                            shown_at(model, "max_input_chars_per_word"));
  return {};
}

}  // namespace

Result<GgufTokenizer> word_piece_vocabulary(const json::object& file, const json::object& model,
                                            int32_t rows) {
  RETURN_IF_ERROR(check_rules(file, model));
  const json::object* vocab = object_at(model, "vocab");
  if (vocab == nullptr) return corrupt("tokenizer.json: model.vocab is missing or no object");
  GgufTokenizer t = unused_vocabulary(rows);
  t.model = "bert";
  t.pre = "default";
  for (const auto& [key, id] : *vocab) {
    std::string piece(key);
    if (piece.starts_with(kGoesOn))
      piece.erase(0, kGoesOn.size());
    else
      piece.insert(0, "\u2581");
    RETURN_IF_ERROR(put_token(t, piece, &id, text::kNormal));
  }
  RETURN_IF_ERROR(for_each_added(file, [&](std::string_view token, const json::value* id, bool special) {
    if (!special)
      return refuse_tokenizer("GGUF's form of WordPiece has no word for " + quote(token) +
                              ", an added token that is not special");
    return put_token(t, token, id, text::kControl);
  }));
  const std::string_view unknown = text_at(model, "unk_token");
  if (const json::value* id = vocab->if_contains(unknown); id != nullptr && id->is_int64())
    t.set_id("tokenizer.ggml.unknown_token_id", static_cast<int32_t>(id->get_int64()));
  return t;
}

}  // namespace invar
