#include "cli/convert/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <memory>
#include <string_view>

#include "base/quote.h"
#include "cli/convert/gguf_ranks.h"
#include "cli/convert/tokenizer_json.h"
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

// Where cuts, normalizers and byte fallback differ, these do.
constexpr std::string_view kProbes[] = {" leading and  double   blanks\n\n\n\tand tabs \r\n end ",
                                        "I'll we've I'M don'T 1234567890 12 3.14 x=(a+b)*c; // !?... --- ___",
                                        "Ångström naïve e\u0301 \uAC00\u1100\u1161 "
                                        "\u4f60\u597d\uff0c\u4e16\u754c \u3053\u3093 \u0928\u092e\u0938 "
                                        "\U0001F600\U0001F468\u200D\U0001F469",
                                        "HTTPServer camelCase iPhone\u00a0X \u00bd \u2167 \uff11\uff12"};

Result<GgufTokenizer> json_vocabulary(const std::string& content, int32_t rows) {
  json::error_code error;
  const json::value root = json::parse(content, error, {}, {.max_depth = 64});
  if (error) return corrupt("tokenizer.json: " + error.message());
  const json::object* file = root.if_object();
  const json::object* model = file == nullptr ? nullptr : object_at(*file, "model");
  if (model == nullptr) return corrupt("tokenizer.json: model is missing");
  const std::string_view type = text_at(*model, "type");
  if (type == "Unigram") return unigram_vocabulary(*file, *model, rows);
  if (type == "WordPiece") return word_piece_vocabulary(*file, *model, rows);
  if (type == "BPE" || (type.empty() && model->contains("merges")))
    return bpe_vocabulary(*file, *model, rows);
  return refuse_tokenizer(fmt::format("GGUF has no form of tokenizers of the kind {}", quote(type)));
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
  v.remove_extra_whitespaces = t.remove_extra_whitespaces;
  v.charsmap = t.charsmap;
  for (const auto& [key, id] : t.ids)
    for (const auto& [name, to] : {std::pair{"bos", &v.bos},
                                   {"eos", &v.eos},
                                   {"eot", &v.eot},
                                   {"eom", &v.eom},
                                   {"unknown", &v.unknown},
                                   {"cls", &v.cls},
                                   {"seperator", &v.sep}})
      if (std::string_view(key) == fmt::format("tokenizer.ggml.{}_token_id", name)) *to = id;
  return Tokenizer::from_gguf(v);
}

// Special tokens in the middle of a text: whether what follows is the beginning of a text again.
std::string text_with_special(const Tokenizer& tokenizer) {
  std::string text = "a";
  int left = 16;
  for (int32_t id = 0; id < tokenizer.vocab_size() && left > 0; ++id) {
    if (!tokenizer.is_control(id) || tokenizer.token_bytes(id).empty()) continue;
    text += std::string(tokenizer.token_bytes(id)) + "the";
    --left;
  }
  return text;
}

Status compare(const Tokenizer& file, const Tokenizer& gguf) {
  if (!std::ranges::equal(file.prefix(), gguf.prefix()) || !std::ranges::equal(file.suffix(), gguf.suffix()))
    return refuse_tokenizer("what it puts around a text cannot be said in GGUF");
  std::vector<std::string> texts(std::begin(kProbes), std::end(kProbes));
  texts.emplace_back(built_in_text());
  texts.push_back(text_with_special(file));
  for (const std::string& text : texts) {
    for (const Special special : {Special::kParse, Special::kPlain}) {
      ASSIGN_OR_RETURN(const auto wanted, file.encode(text, special));
      ASSIGN_OR_RETURN(const auto got, gguf.encode(text, special));
      if (wanted == got) continue;
      const auto at =
          std::mismatch(wanted.begin(), wanted.end(), got.begin(), got.end()).first - wanted.begin();
      return refuse_tokenizer(
          fmt::format("GGUF's form of it would give other ids than it does, for {} from id {} on",
                      quote(text.substr(0, 60)), at));
    }
  }
  if (gguf.vocab_size() < file.vocab_size())
    return refuse_tokenizer(
        fmt::format("GGUF's form of it would have {} tokens, not {}", gguf.vocab_size(), file.vocab_size()));
  for (int32_t id = 0; id < file.vocab_size(); ++id)
    if (!file.token_bytes(id).empty() && file.token_bytes(id) != gguf.token_bytes(id))
      return refuse_tokenizer(fmt::format("GGUF's form of it would write token {} as {}, not {}", id,
                                          quote(gguf.token_bytes(id)), quote(file.token_bytes(id))));
  return {};
}

// A reader of the file that ends answers where the folder does. Ids for that which it does not find by their
// names have two keys.
Result<std::shared_ptr<const Tokenizer>> reader_with_stops(const text::TextModel& folder, GgufTokenizer& t) {
  ASSIGN_OR_RETURN(auto reader, read_back(t));
  std::vector<int32_t> missing;
  for (const int32_t id : folder.stop_ids)
    if (std::ranges::find(reader->stop_ids(), id) == reader->stop_ids().end()) missing.push_back(id);
  if (missing.empty()) return reader;
  std::vector<const char*> keys = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
  std::erase_if(keys, [&](const char* key) { return t.has_id(key); });
  if (missing.size() > keys.size())
    return refuse_tokenizer(
        fmt::format("GGUF has no key for so many ends of an answer (eos_token_id {})", missing.back()));
  for (size_t i = 0; i < missing.size(); ++i)
    t.set_id(keys[i], missing[i]);
  return read_back(t);
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

struct FolderFile {
  const char* name = nullptr;  // nullptr: the folder has none
  std::string content;
};

Result<FolderFile> tokenizer_file(const ModelSource& source) {
  std::vector<const char*> names = {"tokenizer.json"};
  names.insert(names.end(), std::begin(text::kRankFiles), std::end(text::kRankFiles));
  for (const char* name : names) {
    auto content = source.side_file(name);
    if (content.ok()) return FolderFile{name, *std::move(content)};
    if (content.status().code() != Code::kNotFound) return content.status();
  }
  if (source.side_file("tokenizer.model").status().code() != Code::kNotFound)
    return unsupported(fmt::format(
        "{}: tokenizer.model cannot be written to GGUF; a tokenizer.json beside it can", source.path()));
  return FolderFile();
}

// BOS, EOS and the others by what tokenizer_config.json calls them; where it names none, the two that stand
// around every text do.
void add_ids(const text::TextModel& folder, const text::HfTokenizerConfig& config, GgufTokenizer& t) {
  const Tokenizer& tokenizer = *folder.tokenizer;
  const auto prefix = tokenizer.prefix(), suffix = tokenizer.suffix();
  int32_t eos = tokenizer.eos();
  if (eos < 0 && suffix.size() == 1) eos = suffix.front();
  if (eos < 0 && !folder.stop_ids.empty()) eos = folder.stop_ids.front();
  t.set_id("tokenizer.ggml.bos_token_id", tokenizer.bos());
  t.set_id("tokenizer.ggml.eos_token_id", eos);
  for (const auto& [key, name] : {std::pair{"tokenizer.ggml.padding_token_id", "pad_token"},
                                  {"tokenizer.ggml.unknown_token_id", "unk_token"},
                                  {"tokenizer.ggml.cls_token_id", "cls_token"},
                                  {"tokenizer.ggml.seperator_token_id", "sep_token"},
                                  {"tokenizer.ggml.mask_token_id", "mask_token"}})
    t.set_id(key, tokenizer.id_of(config.special_token(name)));
  t.add_bos = !prefix.empty();
  t.add_eos = !suffix.empty();
}

}  // namespace

Result<GgufTokenizer> gguf_tokenizer(const ModelSource& source, int32_t rows) {
  ASSIGN_OR_RETURN(const FolderFile file, tokenizer_file(source));
  if (file.name == nullptr) return GgufTokenizer();
  ASSIGN_OR_RETURN(const text::TextModel folder, set_up_text(source, {.vocab = rows, .chat_template = {}}));
  const Tokenizer& tokenizer = *folder.tokenizer;
  const bool has_ranks = file.name != std::string_view("tokenizer.json");
  Result<GgufTokenizer> made = has_ranks ? rank_vocabulary(file.name, file.content, tokenizer, rows)
                                         : json_vocabulary(file.content, rows);
  if (!made.ok()) return made.status().with_context(source.path());
  GgufTokenizer& t = *made;
  std::string config_text;
  if (auto text = source.side_file("tokenizer_config.json"); text.ok()) config_text = *std::move(text);
  ASSIGN_OR_RETURN(text::HfTokenizerConfig config, text::parse_hf_tokenizer_config(config_text));
  add_ids(folder, config, t);
  RETURN_IF_ERROR(add_templates(source, std::move(config), t));
  const auto reader = reader_with_stops(folder, t);
  if (!reader.ok()) return reader.status().with_context(source.path());
  RETURN_IF_ERROR(compare(tokenizer, **reader).with_context(source.path()));
  if (has_ranks) RETURN_IF_ERROR(check_whole_tokens(tokenizer, **reader).with_context(source.path()));
  return made;
}

bool GgufTokenizer::has_id(std::string_view key) const {
  return std::ranges::any_of(ids, [&](const auto& pair) { return pair.first == key; });
}

void GgufTokenizer::set_id(const char* key, int32_t id) {
  if (id >= 0 && !has_id(key)) ids.emplace_back(key, static_cast<uint32_t>(id));
}

void GgufTokenizer::add_to(GgufFileWriter& writer) const {
  if (model.empty()) return;
  writer.add_string("tokenizer.ggml.model", model);
  writer.add_string("tokenizer.ggml.pre", pre);
  writer.add_strings("tokenizer.ggml.tokens", tokens);
  if (!scores.empty()) writer.add_f32s("tokenizer.ggml.scores", scores);
  writer.add_i32s("tokenizer.ggml.token_type", types);
  if (!merges.empty()) writer.add_strings("tokenizer.ggml.merges", merges);
  if (space_prefix) writer.add_bool("tokenizer.ggml.add_space_prefix", *space_prefix);
  if (remove_extra_whitespaces)
    writer.add_bool("tokenizer.ggml.remove_extra_whitespaces", *remove_extra_whitespaces);
  if (!charsmap.empty()) writer.add_u8s("tokenizer.ggml.precompiled_charsmap", charsmap);
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
