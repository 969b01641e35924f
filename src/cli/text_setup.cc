#include "cli/text_setup.h"

#include <algorithm>
#include <boost/json.hpp>
#include <ctime>
#include <limits>

#include "format/gguf.h"
#include "format/hf_config.h"

namespace invar {
namespace {

using text::ChatTemplate;
using text::ChatTemplateOptions;
using text::NamedTemplate;
using text::Tokenizer;

// What a source kind contributes besides the tokenizer.
struct Templates {
  std::vector<NamedTemplate> templates;
  ChatTemplateOptions options;
};

void compile_templates(const Templates& t, TextSetup& setup) {
  if (t.templates.empty()) {
    setup.template_error = not_found("the model has no chat template; use --raw");
    return;
  }
  auto compiled = ChatTemplate::compile(std::span(t.templates), t.options);
  if (compiled.ok())
    setup.chat_template = std::move(*compiled);
  else
    setup.template_error = compiled.status().with_context("the model's chat template");
}

void add_stop_id(TextSetup& setup, int64_t id) {
  if (id >= 0 && id <= std::numeric_limits<int32_t>::max()) setup.stop_ids.push_back(int32_t(id));
}

// ---- GGUF

Result<Templates> gguf_templates(const GgufFile& file, const std::vector<std::string_view>& tokens) {
  Templates t;
  ASSIGN_OR_RETURN(const auto main_template, file.get_string("tokenizer.chat_template"));
  if (main_template) t.templates.push_back({"default", std::string(*main_template)});
  ASSIGN_OR_RETURN(const auto names, file.get_strings("tokenizer.chat_templates"));
  if (names) {
    for (const std::string_view name : *names) {
      ASSIGN_OR_RETURN(const auto source, file.get_string("tokenizer.chat_template." + std::string(name)));
      if (source && name != "default") t.templates.push_back({std::string(name), std::string(*source)});
    }
  }
  constexpr std::pair<const char*, const char*> kSpecial[] = {
      {"tokenizer.ggml.bos_token_id", "bos_token"},
      {"tokenizer.ggml.eos_token_id", "eos_token"},
      {"tokenizer.ggml.unknown_token_id", "unk_token"},
      {"tokenizer.ggml.padding_token_id", "pad_token"}};
  for (const auto& [key, name] : kSpecial) {
    ASSIGN_OR_RETURN(const auto id, file.get_u32(key));
    if (id && *id < tokens.size()) t.options.special_tokens.emplace_back(name, std::string(tokens[*id]));
  }
  return t;
}

Result<TextSetup> set_up_gguf(const GgufFile& file) {
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
  ASSIGN_OR_RETURN(const auto types, file.get_ints("tokenizer.ggml.token_type"));
  std::vector<int32_t> narrow_types;
  if (types) {
    for (const int64_t type : *types) {
      if (type < std::numeric_limits<int32_t>::min() || type > std::numeric_limits<int32_t>::max())
        return corrupt("tokenizer.ggml.token_type: a value is out of range");
      narrow_types.push_back(int32_t(type));
    }
  }
  vocab.token_types = narrow_types;
  ASSIGN_OR_RETURN(const auto scores, file.get_floats("tokenizer.ggml.scores"));
  if (scores) vocab.scores = *scores;
  ASSIGN_OR_RETURN(vocab.add_bos, file.get_bool("tokenizer.ggml.add_bos_token"));
  ASSIGN_OR_RETURN(vocab.add_eos, file.get_bool("tokenizer.ggml.add_eos_token"));
  ASSIGN_OR_RETURN(vocab.add_space_prefix, file.get_bool("tokenizer.ggml.add_space_prefix"));
  ASSIGN_OR_RETURN(vocab.bos, file.get_u32("tokenizer.ggml.bos_token_id"));
  ASSIGN_OR_RETURN(vocab.eos, file.get_u32("tokenizer.ggml.eos_token_id"));
  ASSIGN_OR_RETURN(vocab.eot, file.get_u32("tokenizer.ggml.eot_token_id"));
  ASSIGN_OR_RETURN(vocab.eom, file.get_u32("tokenizer.ggml.eom_token_id"));

  TextSetup setup;
  ASSIGN_OR_RETURN(setup.tokenizer, Tokenizer::from_gguf(vocab));
  ASSIGN_OR_RETURN(const Templates templates, gguf_templates(file, vocab.tokens));
  compile_templates(templates, setup);
  return setup;
}

// ---- Hugging Face

// A file that may be missing.
Result<std::string> optional_side_file(const ModelSource& source, const char* name) {
  auto text = source.side_file(name);
  if (!text.ok() && text.status().code() == Code::kNotFound) return std::string();
  return text;
}

// eos_token_id is a number or a list.
Status add_eos_ids(const HfConfig& config, TextSetup& setup) {
  if (!config.has("eos_token_id")) return {};
  if (const auto one = config.get_int("eos_token_id"); one.ok()) {
    add_stop_id(setup, **one);
    return {};
  }
  ASSIGN_OR_RETURN(const auto list, config.get_ints("eos_token_id"));
  for (const int64_t id : *list)
    add_stop_id(setup, id);
  return {};
}

Result<TextSetup> set_up_hugging_face(const ModelSource& source) {
  ASSIGN_OR_RETURN(const std::string tokenizer, source.side_file("tokenizer.json"));
  ASSIGN_OR_RETURN(const std::string config, optional_side_file(source, "tokenizer_config.json"));
  TextSetup setup;
  ASSIGN_OR_RETURN(setup.tokenizer, Tokenizer::from_json(tokenizer, config));

  ASSIGN_OR_RETURN(text::HfTokenizerConfig parsed, text::parse_hf_tokenizer_config(config));
  Templates t{std::move(parsed.chat_templates), {std::move(parsed.special_tokens)}};
  // Newer checkpoints keep the template in a file of its own, which then counts.
  ASSIGN_OR_RETURN(std::string jinja, optional_side_file(source, "chat_template.jinja"));
  if (!jinja.empty()) {
    std::erase_if(t.templates, [](const NamedTemplate& n) { return n.name == "default"; });
    t.templates.push_back({"default", std::move(jinja)});
  }
  compile_templates(t, setup);

  ASSIGN_OR_RETURN(const std::string generation, optional_side_file(source, "generation_config.json"));
  if (!generation.empty()) {
    ASSIGN_OR_RETURN(const HfConfig g, HfConfig::parse(generation, "generation_config.json"));
    RETURN_IF_ERROR(add_eos_ids(g, setup));
  }
  if (source.config() != nullptr) RETURN_IF_ERROR(add_eos_ids(*source.config(), setup));
  return setup;
}

}  // namespace

Result<TextSetup> set_up_text(const ModelSource& source) {
  auto setup = source.gguf() ? set_up_gguf(*source.gguf()) : set_up_hugging_face(source);
  if (!setup.ok()) return setup.status().with_context(source.path());
  std::vector<int32_t>& ids = setup->stop_ids;
  const auto from_tokenizer = setup->tokenizer->stop_ids();
  ids.insert(ids.end(), from_tokenizer.begin(), from_tokenizer.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return setup;
}

Result<std::vector<int32_t>> encode_chat(const TextSetup& setup, const std::vector<ChatMessage>& messages) {
  if (!setup.chat_template) return setup.template_error;
  boost::json::array list;
  for (const ChatMessage& m : messages)
    list.push_back(boost::json::object{{"role", m.role}, {"content", m.content}});
  const boost::json::object context = {{"messages", std::move(list)}, {"add_generation_prompt", true}};
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  ASSIGN_OR_RETURN(const text::Rendered prompt,
                   setup.chat_template->render(boost::json::serialize(context), now + local.tm_gmtoff));
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, setup.tokenizer->encode(prompt.text, text::Special::kParse));
  if (setup.tokenizer->add_bos() && (ids.empty() || ids.front() != setup.tokenizer->bos()))
    ids.insert(ids.begin(), setup.tokenizer->bos());
  return ids;
}

Result<std::vector<int32_t>> encode_raw(const TextSetup& setup, std::string_view text) {
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, setup.tokenizer->encode(text, text::Special::kParse));
  const auto prefix = setup.tokenizer->prefix();
  ids.insert(ids.begin(), prefix.begin(), prefix.end());
  return ids;
}

}  // namespace invar
