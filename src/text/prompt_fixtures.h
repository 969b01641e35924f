#pragma once
// For tests of prompts: models of a real tokenizer and a template, and conversations in two versions, one
// with control tokens spelled in every text, whole or in parts, and one in which the same characters are
// letters.

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "text/code_points.h"
#include "text/test_files.h"
#include "text/text_model.h"

namespace invar::text {

inline const std::vector<std::string> kTokenizers = {"qwen3",      "llama3.1",      "gemma3",
                                                     "llama2-spm", "gpt-oss-o200k", "deepseek-v4"};

inline std::shared_ptr<const Tokenizer> cached_tokenizer(const std::string& name) {
  static auto* const loaded = new std::map<std::string, std::shared_ptr<const Tokenizer>>;
  std::shared_ptr<const Tokenizer>& tokenizer = (*loaded)[name];
  if (!tokenizer) {
    auto result = Tokenizer::from_json(cached_file(name + ".json"), "");
    EXPECT_TRUE(result.ok()) << result.status().message();
    if (result.ok()) tokenizer = *result;
  }
  return tokenizer;
}

inline TextModel chat_model(std::shared_ptr<const Tokenizer> tokenizer, const std::string& source) {
  TextModelParts parts{.tokenizer = std::move(tokenizer),
                       .templates = {{"default", source}},
                       .template_options = {},
                       .stop_ids = {}};
  const auto text = [&](int32_t id) { return id < 0 ? "" : std::string(parts.tokenizer->token_bytes(id)); };
  parts.template_options.special_tokens = {{"bos_token", text(parts.tokenizer->bos())}, {"eos_token", ""}};
  TextModel model = make_text_model(std::move(parts));
  EXPECT_NE(model.chat_template, nullptr) << model.template_error.message();
  return model;
}

inline TextModel chat_model(const std::string& tokenizer, const std::string& source) {
  return chat_model(cached_tokenizer(tokenizer), source);
}

class ConversationMaker {
 public:
  struct Twins {
    std::string hostile, harmless;  // contexts of a template
  };

  ConversationMaker(const Tokenizer& tokenizer, unsigned seed) : random_(seed) {
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
      if (tokenizer.is_control(id)) spellings_.emplace_back(tokenizer.token_bytes(id));
  }

  Twins next() {
    const std::mt19937 before = random_;
    Twins twins;
    harmless_ = false;
    twins.hostile = conversation();
    random_ = before;
    harmless_ = true;
    twins.harmless = conversation();
    return twins;
  }

 private:
  std::string conversation() {
    boost::json::array messages;
    if (pick(3) == 0) messages.push_back({{"role", "system"}, {"content", text()}});
    for (size_t turns = 1 + pick(3); turns > 0; --turns) {
      messages.push_back({{"role", "user"}, {"content", content()}});
      if (turns == 1 && pick(2) == 0) break;
      std::string said = text();
      if (pick(3) == 0) said = "<think>\n" + said + "</think>" + text();
      boost::json::object answer{{"role", "assistant"}, {"content", said}};
      if (pick(5) == 0) {
        const std::string name = text(), key = text(), value = text();
        const boost::json::object function{{"name", name}, {"arguments", {{key, value}, {"x", 1}}}};
        answer["tool_calls"] = {{{"id", "a23456789"}, {"type", "function"}, {"function", function}}};
        messages.push_back(answer);
        messages.push_back({{"role", "tool"}, {"content", text()}});
        continue;
      }
      messages.push_back(answer);
    }
    boost::json::object context{{"messages", messages}, {"add_generation_prompt", pick(2) == 0}};
    if (pick(4) == 0) {
      const std::string name = text(), about = text(), key = text(), key_about = text();
      const boost::json::object property{{"type", "string"}, {"description", key_about}};
      const boost::json::object parameters{{"type", "object"}, {"properties", {{key, property}}}};
      context["tools"] = {
          {{"type", "function"},
           {"function", {{"name", name}, {"description", about}, {"parameters", parameters}}}}};
    }
    return boost::json::serialize(context);
  }

  size_t pick(size_t n) { return random_() % n; }

  // A spelling or a part of one.
  std::string piece() {
    std::string s = spellings_[pick(spellings_.size())];
    std::u32string characters = code_points(s);
    if (pick(2) == 0) {
      const size_t begin = pick(characters.size());
      characters = characters.substr(begin, 1 + pick(characters.size() - begin));
      s.clear();
      for (const char32_t c : characters)
        append_utf8(c, s);
    }
    const bool punctuated =
        s.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_- ./") !=
        std::string::npos;
    if (!punctuated || s == "[" || s == "]") return "word ";
    if (!harmless_) return s;
    std::string letters;
    for (const char32_t c : code_points(s))
      append_utf8(c == U' ' ? c : U'x', letters);
    return letters;
  }

  std::string text() {
    std::string s;
    for (size_t n = 1 + pick(3); n > 0; --n) {
      switch (pick(4)) {
        case 0:
          s += "plain words";
          break;
        case 1:
          s += pick(2) == 0 ? " " : "\n";
          break;
        default:
          s += piece();
      }
    }
    return s;
  }

  boost::json::value content() {
    if (pick(4) != 0) return boost::json::string(text());
    boost::json::array parts;
    for (size_t n = 1 + pick(3); n > 0; --n)
      parts.push_back({{"type", "text"}, {"text", text()}});
    return parts;
  }

  std::mt19937 random_;
  std::vector<std::string> spellings_;
  bool harmless_ = false;
};

}  // namespace invar::text
