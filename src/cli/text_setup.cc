#include "cli/text_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <future>
#include <limits>
#include <utility>

#include "base/error_text.h"
#include "cli/prompts.h"
#include "format/gguf.h"
#include "format/hf_config.h"
#include "models/load_plan.h"
#include "text/gguf_vocab.h"
#include "text/hf_config.h"
#include "text/prompt.h"

namespace invar {
namespace {

using text::NamedTemplate;
using text::TextModelParts;
using text::Tokenizer;

// ---- GGUF

Status add_gguf_templates(const GgufFile& file, const std::vector<std::string_view>& tokens,
                          TextModelParts& parts) {
  ASSIGN_OR_RETURN(const auto main_template, file.get_string("tokenizer.chat_template"));
  if (main_template) parts.templates.push_back({"default", std::string(*main_template)});
  ASSIGN_OR_RETURN(const auto names, file.get_strings("tokenizer.chat_templates"));
  if (names) {
    for (const std::string_view name : *names) {
      ASSIGN_OR_RETURN(const auto source, file.get_string("tokenizer.chat_template." + std::string(name)));
      if (source && name != "default") parts.templates.push_back({std::string(name), std::string(*source)});
    }
  }
  constexpr std::pair<const char*, const char*> kSpecial[] = {
      {"tokenizer.ggml.bos_token_id", "bos_token"},
      {"tokenizer.ggml.eos_token_id", "eos_token"},
      {"tokenizer.ggml.unknown_token_id", "unk_token"},
      {"tokenizer.ggml.padding_token_id", "pad_token"}};
  for (const auto& [key, name] : kSpecial) {
    ASSIGN_OR_RETURN(const auto id, file.get_u32(key));
    if (id && *id < tokens.size())
      parts.template_options.special_tokens.emplace_back(name, std::string(tokens[*id]));
  }
  return {};
}

Result<TextModelParts> gguf_parts(const GgufFile& file) {
  text::GgufVocab vocab;
  ASSIGN_OR_RETURN(const auto model, file.get_string("tokenizer.ggml.model"));
  if (!model) return not_found("tokenizer.ggml.model is missing: the file has no tokenizer");
  vocab.model = *model;
  ASSIGN_OR_RETURN(const auto pre, file.get_string("tokenizer.ggml.pre"));
  vocab.pre = pre.value_or("");
  ASSIGN_OR_RETURN(const auto tokens, file.get_strings("tokenizer.ggml.tokens"));
  if (!tokens) return not_found("tokenizer.ggml.tokens is missing: the file has no vocabulary");
  for (const std::string_view token : *tokens)
    vocab.tokens.push_back(token);
  ASSIGN_OR_RETURN(const auto merges, file.get_strings("tokenizer.ggml.merges"));
  if (merges) {
    for (const std::string_view merge : *merges)
      vocab.merges.push_back(merge);
  }
  if (!merges && (vocab.model == "gpt2" || vocab.model == "gemma4"))
    return not_found(fmt::format(
        "tokenizer.ggml.merges is missing, without which a {} vocabulary splits text into single characters",
        vocab.model));
  ASSIGN_OR_RETURN(const auto types, file.get_ints("tokenizer.ggml.token_type"));
  if (!types || types->empty())
    return not_found("tokenizer.ggml.token_type is missing, without which control tokens would be text");
  std::vector<int32_t> narrow_types;
  for (const int64_t type : *types) {
    if (type < std::numeric_limits<int32_t>::min() || type > std::numeric_limits<int32_t>::max())
      return corrupt("tokenizer.ggml.token_type: a value is out of range");
    narrow_types.push_back(int32_t(type));
  }
  vocab.token_types = narrow_types;
  ASSIGN_OR_RETURN(const auto scores, file.get_floats("tokenizer.ggml.scores"));
  if (scores) vocab.scores = *scores;
  ASSIGN_OR_RETURN(vocab.add_bos, file.get_bool("tokenizer.ggml.add_bos_token"));
  ASSIGN_OR_RETURN(vocab.add_eos, file.get_bool("tokenizer.ggml.add_eos_token"));
  ASSIGN_OR_RETURN(vocab.add_space_prefix, file.get_bool("tokenizer.ggml.add_space_prefix"));
  ASSIGN_OR_RETURN(vocab.add_sep, file.get_bool("tokenizer.ggml.add_sep_token"));
  ASSIGN_OR_RETURN(vocab.remove_extra_whitespaces, file.get_bool("tokenizer.ggml.remove_extra_whitespaces"));
  ASSIGN_OR_RETURN(const auto charsmap, file.get_ints("tokenizer.ggml.precompiled_charsmap"));
  std::string charsmap_bytes;
  if (charsmap) {
    for (const int64_t byte : *charsmap) {  // of either sign
      if (byte < -128 || byte > 255)
        return corrupt("tokenizer.ggml.precompiled_charsmap: a value is no byte");
      charsmap_bytes.push_back(static_cast<char>(byte));
    }
  }
  vocab.charsmap = charsmap_bytes;
  ASSIGN_OR_RETURN(vocab.bos, file.get_u32("tokenizer.ggml.bos_token_id"));
  ASSIGN_OR_RETURN(vocab.eos, file.get_u32("tokenizer.ggml.eos_token_id"));
  ASSIGN_OR_RETURN(vocab.eot, file.get_u32("tokenizer.ggml.eot_token_id"));
  ASSIGN_OR_RETURN(vocab.eom, file.get_u32("tokenizer.ggml.eom_token_id"));
  ASSIGN_OR_RETURN(vocab.unknown, file.get_u32("tokenizer.ggml.unknown_token_id"));
  ASSIGN_OR_RETURN(vocab.cls, file.get_u32("tokenizer.ggml.cls_token_id"));
  ASSIGN_OR_RETURN(vocab.sep, file.get_u32("tokenizer.ggml.seperator_token_id"));

  TextModelParts parts;
  ASSIGN_OR_RETURN(parts.tokenizer, Tokenizer::from_gguf(vocab));
  RETURN_IF_ERROR(add_gguf_templates(file, vocab.tokens, parts));
  return parts;
}

// ---- Hugging Face

// A file that may be missing.
Result<std::string> optional_side_file(const ModelSource& source, const char* name) {
  auto text = source.side_file(name);
  if (!text.ok() && text.status().code() == Code::kNotFound) return std::string();
  return text;
}

// Rows of the embedding; no limit when the source has none (audits say so).
int64_t embedding_rows(const ModelSource& source) {
  const SourceTensor* table = source.find("model.embed_tokens.weight");
  return table == nullptr || table->shape.size() != 2 ? std::numeric_limits<int32_t>::max() : table->shape[0];
}

// eos_token_id is a number or a list; -1 stands for none in some files.
Status add_eos_ids(const HfConfig& config, const char* label, int64_t rows, TextModelParts& parts) {
  if (!config.has("eos_token_id")) return {};
  std::vector<int64_t> ids;
  if (const auto one = config.get_int("eos_token_id"); one.ok()) {
    ids.push_back(**one);
  } else {
    ASSIGN_OR_RETURN(const auto list, config.get_ints("eos_token_id"));
    ids = *list;
  }
  for (const int64_t id : ids) {
    if (id < -1 || id >= rows)
      return corrupt(
          fmt::format("{}: eos_token_id {} is outside the {} embedding rows of the model", label, id, rows));
  }
  parts.stop_ids.insert(parts.stop_ids.end(), ids.begin(), ids.end());
  return {};
}

// tokenizer.json where there is one; a file of ranks else.
Result<std::shared_ptr<const Tokenizer>> folder_tokenizer(const ModelSource& source,
                                                          std::string_view config) {
  const auto json = source.side_file("tokenizer.json");
  if (json.ok()) return Tokenizer::from_json(*json, config);
  if (json.status().code() != Code::kNotFound) return json.status();
  for (const char* name : text::kRankFiles) {
    const auto ranks = source.side_file(name);
    if (ranks.ok()) return Tokenizer::from_ranks(name, *ranks, config);
    if (ranks.status().code() != Code::kNotFound) return ranks.status();
  }
  // Its text may be no text at all: only whether it is there counts.
  if (source.side_file("tokenizer.model").status().code() != Code::kNotFound)
    return unsupported(
        "tokenizer.model: a SentencePiece file without a tokenizer.json beside it; convert it "
        "to tokenizer.json (with save_pretrained of the transformers library), or use a GGUF file of the "
        "model");
  return not_found(fmt::format("{}, nor {}; copy the tokenizer's file from where the model came from",
                               json.status().message(), fmt::join(text::kRankFiles, ", ")));
}

Result<TextModelParts> hugging_face_parts(const ModelSource& source) {
  ASSIGN_OR_RETURN(const std::string config, optional_side_file(source, "tokenizer_config.json"));
  TextModelParts parts;
  ASSIGN_OR_RETURN(parts.tokenizer, folder_tokenizer(source, config));

  ASSIGN_OR_RETURN(text::HfTokenizerConfig parsed, text::parse_hf_tokenizer_config(config));
  parts.templates = std::move(parsed.chat_templates);
  parts.template_options.special_tokens = std::move(parsed.special_tokens);
  // Newer checkpoints keep the template in a file of its own, which then counts.
  ASSIGN_OR_RETURN(std::string jinja, optional_side_file(source, "chat_template.jinja"));
  if (!jinja.empty()) {
    std::erase_if(parts.templates, [](const NamedTemplate& n) { return n.name == "default"; });
    parts.templates.push_back({"default", std::move(jinja)});
  }

  ASSIGN_OR_RETURN(const std::string generation, optional_side_file(source, "generation_config.json"));
  if (!generation.empty()) {
    ASSIGN_OR_RETURN(const HfConfig g, HfConfig::parse(generation, "generation_config.json"));
    RETURN_IF_ERROR(add_eos_ids(g, "generation_config.json", embedding_rows(source), parts));
  }
  if (source.config() != nullptr)
    RETURN_IF_ERROR(add_eos_ids(*source.config(), "config.json", embedding_rows(source), parts));
  return parts;
}

}  // namespace

Result<text::TextModel> set_up_text(const ModelSource& source, const TextSetupOptions& options) {
  auto parts = source.gguf() ? gguf_parts(*source.gguf()) : hugging_face_parts(source);
  if (!parts.ok()) {
    const char* const remedy = source.gguf()
                                   ? "fetch the file again, or convert the model again"
                                   : "copy the tokenizer's files again from where the model came from";
    return located(with_remedy(parts.status(), remedy), source.path());
  }
  if (const Status fits = parts->tokenizer->check_rows(embedding_rows(source)); !fits.ok())
    return fits.with_context(source.path());
  parts->vocab = options.vocab;
  if (!options.chat_template.empty()) parts->templates = {{"default", options.chat_template}};
  text::TextModel model = text::make_text_model(std::move(*parts));
  if (!model.template_error.ok() && model.template_error.code() != Code::kNotFound)
    model.template_error = model.template_error.with_context(
        options.chat_template.empty() ? source.path() : std::string("--chat-template"));
  return model;
}

Result<ModelWithText> load_with_text(const EngineFlags& flags, const std::string& chat_template,
                                     const std::function<Status(const text::TextModel&)>& check) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const ModelSource> source, flags.open_source());
  auto text =
      std::async(std::launch::async, [&] { return set_up_text(*source, {.chat_template = chat_template}); });
  ModelWithText loaded;
  if (check != nullptr) {
    RETURN_IF_ERROR(plan_load(*source, flags.rope()).status());
    ASSIGN_OR_RETURN(loaded.text, text.get());
    RETURN_IF_ERROR(check(loaded.text));
  }
  ASSIGN_OR_RETURN(loaded.model, flags.load_model(source));
  if (check == nullptr) {
    ASSIGN_OR_RETURN(loaded.text, text.get());
  }
  std::erase_if(loaded.text.stop_ids, [&](int32_t id) { return id >= loaded.model->info().vocab; });
  return loaded;
}

Result<std::string> read_chat_template(const std::string& path) {
  if (path.empty()) return std::string();
  auto text = read_text(path);
  if (!text.ok()) return text.status().with_context("--chat-template");
  if (text->empty()) return invalid_argument(fmt::format("--chat-template {}: the file is empty", path));
  return text;
}

Result<std::vector<int32_t>> encode_chat(const text::TextModel& model,
                                         const std::vector<ChatMessage>& messages) {
  boost::json::array list;
  for (const ChatMessage& m : messages)
    list.push_back(boost::json::object{{"role", m.role}, {"content", m.content}});
  const boost::json::object context = {{"messages", std::move(list)}, {"add_generation_prompt", true}};
  ASSIGN_OR_RETURN(text::Prompt prompt,
                   text::chat_prompt(model, boost::json::serialize(context), text::template_clock()));
  return std::move(prompt.ids);
}

}  // namespace invar
