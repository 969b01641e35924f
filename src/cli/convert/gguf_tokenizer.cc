#include "cli/convert/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "base/quote.h"
#include "cli/quality/built_in_text.h"
#include "cli/text_setup.h"
#include "text/gguf_vocab.h"
#include "text/hf_config.h"
#include "text/tokenizer.h"

namespace invar {
namespace {

namespace json = boost::json;
using text::Special;
using text::Tokenizer;

enum TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// Where cuts, normalizers and byte fallback differ, these do.
constexpr std::string_view kProbes[] = {" leading and  double   blanks\n\n\n\tand tabs \r\n end ",
                                        "I'll we've I'M don'T 1234567890 12 3.14 x=(a+b)*c; // !?... --- ___",
                                        "Ångström naïve e\u0301 \uAC00\u1100\u1161 "
                                        "\u4f60\u597d\uff0c\u4e16\u754c \u3053\u3093 \u0928\u092e\u0938 "
                                        "\U0001F600\U0001F468\u200D\U0001F469",
                                        "HTTPServer camelCase iPhone\u00a0X \u00bd \u2167 \uff11\uff12"};

const json::object* object_at(const json::object& o, const char* key) {
  const json::value* v = o.if_contains(key);
  return v == nullptr ? nullptr : v->if_object();
}
std::string_view text_at(const json::object& o, const char* key) {
  const json::value* v = o.if_contains(key);
  const json::string* s = v == nullptr ? nullptr : v->if_string();
  return s == nullptr ? std::string_view() : std::string_view(s->data(), s->size());
}
bool flag_at(const json::object& o, const char* key) {
  const json::value* v = o.if_contains(key);
  return v != nullptr && v->is_bool() && v->get_bool();
}

Status refuse(const std::string& what) {
  return unsupported(fmt::format("tokenizer.json: {}; without DST the model is packed", what));
}

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
  return refuse(fmt::format(
      "GGUF has no name known here for its normalizer and cut, {} and {}",
      printable_within(json::serialize(file.contains("normalizer") ? file.at("normalizer") : json::value()),
                       200),
      printable_within(
          json::serialize(file.contains("pre_tokenizer") ? file.at("pre_tokenizer") : json::value()), 400)));
}

Status put_token(GgufTokenizer& t, std::string_view text, const json::value* id, int32_t type) {
  if (id == nullptr || !id->is_int64() || id->get_int64() < 0 || id->get_int64() >= int64_t(t.tokens.size()))
    return corrupt(fmt::format("tokenizer.json: token {} has no id below {} (vocab_size)", quote(text),
                               t.tokens.size()));
  const auto i = static_cast<size_t>(id->get_int64());
  t.tokens[i] = text;
  t.types[i] = type;
  return {};
}

Status add_tokens(const json::object& file, const json::object& model, bool has_bytes, GgufTokenizer& t) {
  const json::object* vocab = object_at(model, "vocab");
  if (vocab == nullptr) return corrupt("tokenizer.json: model.vocab is missing or no object");
  for (const auto& [text, id] : *vocab) {
    const std::string_view token(text.data(), text.size());
    const bool is_byte = has_bytes && token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
    RETURN_IF_ERROR(put_token(t, token, &id, is_byte ? kByte : kNormal));
  }
  const std::string_view unknown = text_at(model, "unk_token");
  const json::value* added = file.if_contains("added_tokens");
  if (added == nullptr || !added->is_array()) return {};
  for (const json::value& entry : added->get_array()) {
    if (!entry.is_object()) return corrupt("tokenizer.json: an entry of added_tokens is no object");
    const json::object& o = entry.get_object();
    std::string token(text_at(o, "content"));
    const bool special = flag_at(o, "special");
    // GGUF has whole pieces of text as they are in the text, with blanks.
    constexpr std::string_view kBlank = "\u2581";
    for (size_t at = 0; has_bytes && !special && (at = token.find(kBlank, at)) != std::string::npos;)
      token.replace(at, kBlank.size(), " ");
    RETURN_IF_ERROR(put_token(t, token, o.if_contains("id"),
                              !special                        ? kUserDefined
                              : has_bytes && token == unknown ? kUnknown
                                                              : kControl));
  }
  return {};
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
    if (const auto at = made.find(t.tokens[i]); at != made.end() && t.types[i] == kNormal)
      t.scores[i] = -static_cast<float>(at->second);
  t.merges.clear();
}

bool prefixes_a_blank(const json::object& file) {
  const json::object *normalizer = object_at(file, "normalizer"), *cut = object_at(file, "pre_tokenizer");
  if (normalizer != nullptr && json::serialize(*normalizer).find("\"Prepend\"") != std::string::npos)
    return true;
  return cut != nullptr && text_at(*cut, "type") == "Metaspace" && text_at(*cut, "prepend_scheme") != "never";
}

Result<GgufTokenizer> vocabulary(const std::string& content, int32_t rows) {
  json::error_code error;
  const json::value root = json::parse(content, error, {}, {.max_depth = 64});
  if (error) return corrupt("tokenizer.json: " + error.message());
  const json::object* file = root.if_object();
  const json::object* model = file == nullptr ? nullptr : object_at(*file, "model");
  if (model == nullptr) return corrupt("tokenizer.json: model is missing");
  const std::string_view type = text_at(*model, "type");
  if (type != "BPE" && !(type.empty() && model->contains("merges")))
    return refuse(
        fmt::format("tokenizers of the kind {} cannot be written to GGUF yet; BPE can", quote(type)));
  GgufTokenizer t;
  const bool has_bytes = flag_at(*model, "byte_fallback");
  t.tokens.resize(static_cast<size_t>(rows));
  t.types.assign(t.tokens.size(), kUnused);
  for (size_t i = 0; i < t.tokens.size(); ++i)
    t.tokens[i] = fmt::format("[PAD{}]", i);
  RETURN_IF_ERROR(add_tokens(*file, *model, has_bytes, t));
  RETURN_IF_ERROR(add_merges(*model, t));
  t.model = has_bytes ? "llama" : "gpt2";
  if (has_bytes) {
    t.pre = "default";
    t.space_prefix = prefixes_a_blank(*file);
    merges_to_scores(t);
  } else {
    ASSIGN_OR_RETURN(t.pre, pre_name(*file, flag_at(*model, "ignore_merges")));
  }
  return t;
}

// As a reader of the file would see it.
Result<std::shared_ptr<const Tokenizer>> read_back(const GgufTokenizer& t) {
  text::GgufVocab v;
  v.model = t.model;
  v.pre = t.pre;
  v.tokens.assign(t.tokens.begin(), t.tokens.end());
  v.token_types = t.types;
  v.scores = t.scores;
  v.merges.assign(t.merges.begin(), t.merges.end());
  v.add_bos = t.add_bos;
  v.add_eos = t.add_eos;
  v.add_space_prefix = t.space_prefix;
  for (const auto& [key, id] : t.ids)
    for (const auto& [name, to] : {std::pair{"bos", &v.bos},
                                   {"eos", &v.eos},
                                   {"eot", &v.eot},
                                   {"eom", &v.eom},
                                   {"unknown", &v.unknown}})
      if (std::string_view(key) == fmt::format("tokenizer.ggml.{}_token_id", name)) *to = id;
  return Tokenizer::from_gguf(v);
}

Status compare(const Tokenizer& file, const Tokenizer& gguf) {
  if (!std::ranges::equal(file.prefix(), gguf.prefix()) || !std::ranges::equal(file.suffix(), gguf.suffix()))
    return refuse("what it puts around a text cannot be said in GGUF");
  std::vector<std::string_view> texts(std::begin(kProbes), std::end(kProbes));
  texts.push_back(built_in_text());
  for (const std::string_view text : texts) {
    for (const Special special : {Special::kParse, Special::kPlain}) {
      ASSIGN_OR_RETURN(const auto wanted, file.encode(text, special));
      ASSIGN_OR_RETURN(const auto got, gguf.encode(text, special));
      if (wanted == got) continue;
      const auto at =
          std::mismatch(wanted.begin(), wanted.end(), got.begin(), got.end()).first - wanted.begin();
      return refuse(fmt::format("GGUF's form of it would give other ids than it does, for {} from id {} on",
                                quote(text.substr(0, 60)), at));
    }
  }
  return {};
}

// Ids that end an answer and that a reader does not find by their names have two keys.
Status add_stop_ids(const text::TextModel& folder, GgufTokenizer& t) {
  std::vector<const char*> keys = {"tokenizer.ggml.eom_token_id", "tokenizer.ggml.eot_token_id"};
  for (const int32_t id : folder.stop_ids) {
    ASSIGN_OR_RETURN(const auto reader, read_back(t));
    if (std::ranges::find(reader->stop_ids(), id) != reader->stop_ids().end()) continue;
    if (keys.empty())
      return refuse(fmt::format("GGUF has no key for so many ends of an answer (eos_token_id {})", id));
    t.ids.emplace_back(keys.back(), static_cast<uint32_t>(id));
    keys.pop_back();
  }
  return {};
}

Status add_templates(const ModelSource& source, text::HfTokenizerConfig config, GgufTokenizer& t) {
  for (text::NamedTemplate& named : config.chat_templates)
    t.templates.emplace_back(std::move(named.name), std::move(named.source));
  auto jinja = source.side_file("chat_template.jinja");
  if (!jinja.ok()) return jinja.status().code() == Code::kNotFound ? Status() : jinja.status();
  std::erase_if(t.templates, [](const auto& named) { return named.first == "default"; });
  t.templates.emplace_back("default", *std::move(jinja));
  return {};
}

Status need_no_other(const ModelSource& source) {
  for (const char* name : {"tekken.json", "qwen.tiktoken", "tokenizer.model"})
    if (source.side_file(name).status().code() != Code::kNotFound)
      return unsupported(fmt::format("{}: {} cannot be written to GGUF; a tokenizer.json beside it can",
                                     source.path(), name));
  return {};
}

}  // namespace

Result<GgufTokenizer> gguf_tokenizer(const ModelSource& source, int32_t rows) {
  const auto content = source.side_file("tokenizer.json");
  if (!content.ok()) {
    if (content.status().code() != Code::kNotFound) return content.status();
    RETURN_IF_ERROR(need_no_other(source));
    return GgufTokenizer();
  }
  ASSIGN_OR_RETURN(const text::TextModel folder, set_up_text(source, {.vocab = rows, .chat_template = {}}));
  const Tokenizer& tokenizer = *folder.tokenizer;
  Result<GgufTokenizer> made = vocabulary(*content, rows);
  if (!made.ok()) return made.status().with_context(source.path());
  GgufTokenizer& t = *made;
  std::string config_text;
  if (auto text = source.side_file("tokenizer_config.json"); text.ok()) config_text = *std::move(text);
  ASSIGN_OR_RETURN(text::HfTokenizerConfig config, text::parse_hf_tokenizer_config(config_text));
  const int32_t eos =
      tokenizer.eos() >= 0 || folder.stop_ids.empty() ? tokenizer.eos() : folder.stop_ids.front();
  for (const auto& [key, id] :
       {std::pair{"tokenizer.ggml.bos_token_id", tokenizer.bos()},
        {"tokenizer.ggml.eos_token_id", eos},
        {"tokenizer.ggml.padding_token_id", tokenizer.id_of(config.special_token("pad_token"))},
        {"tokenizer.ggml.unknown_token_id", tokenizer.id_of(config.special_token("unk_token"))}})
    if (id >= 0) t.ids.emplace_back(key, static_cast<uint32_t>(id));
  t.add_bos = tokenizer.add_bos();
  t.add_eos = tokenizer.add_eos();
  RETURN_IF_ERROR(add_templates(source, std::move(config), t));
  RETURN_IF_ERROR(add_stop_ids(folder, t).with_context(source.path()));
  ASSIGN_OR_RETURN(const auto reader, read_back(t));
  RETURN_IF_ERROR(compare(tokenizer, *reader).with_context(source.path()));
  return made;
}

void GgufTokenizer::add_to(GgufWriter& writer) const {
  if (model.empty()) return;
  writer.add_string("tokenizer.ggml.model", model);
  writer.add_string("tokenizer.ggml.pre", pre);
  writer.add_strings("tokenizer.ggml.tokens", tokens);
  if (!scores.empty()) writer.add_f32s("tokenizer.ggml.scores", scores);
  writer.add_i32s("tokenizer.ggml.token_type", types);
  if (!merges.empty()) writer.add_strings("tokenizer.ggml.merges", merges);
  if (space_prefix) writer.add_bool("tokenizer.ggml.add_space_prefix", *space_prefix);
  writer.add_bool("tokenizer.ggml.add_bos_token", add_bos);
  writer.add_bool("tokenizer.ggml.add_eos_token", add_eos);
  for (const auto& [key, id] : ids)
    writer.add_u32(key, id);
  std::vector<std::string> names;
  for (const auto& [name, text] : templates) {
    writer.add_string(name == "default" ? "tokenizer.chat_template" : "tokenizer.chat_template." + name,
                      text);
    if (name != "default") names.push_back(name);
  }
  if (!names.empty()) writer.add_strings("tokenizer.chat_templates", names);
}

}  // namespace invar
