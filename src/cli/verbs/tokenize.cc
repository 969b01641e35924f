// invar tokenize: text to token ids and pieces, and back.

#include <fmt/format.h>

#include <boost/json.hpp>
#include <limits>
#include <utility>

#include "base/quote.h"
#include "base/utf8.h"
#include "cli/engine_flags.h"
#include "cli/prompts.h"
#include "cli/text_setup.h"
#include "cli/verbs.h"
#include "text/detokenizer.h"

namespace invar {
namespace {

struct TokenizeOptions {
  bool ids = false, json = false, no_special = false, bos = false;
  std::string decode;
  std::vector<std::string> text;
};

// "1, 2 3" or "[1, 2, 3]".
Result<std::vector<int32_t>> parse_ids(const std::string& list) {
  std::vector<int32_t> ids;
  size_t at = 0;
  while ((at = list.find_first_not_of(" ,[]\t\r\n", at)) != std::string::npos) {
    const size_t end = std::min(list.find_first_of(" ,[]\t\r\n", at), list.size());
    ASSIGN_OR_RETURN(const int64_t id, parse_integer("--decode", list.substr(at, end - at), 0,
                                                     std::numeric_limits<int32_t>::max()));
    ids.push_back(int32_t(id));
    at = end;
  }
  if (ids.empty())
    return invalid_argument("--decode: no ids; give a list such as 1,2,3 or - for standard input");
  return ids;
}

// Text where the bytes are whole characters, else the list of bytes.
boost::json::value json_piece(std::string_view bytes) {
  if (is_utf8(bytes)) return boost::json::string(bytes.data(), bytes.size());
  boost::json::array list;
  for (const char c : bytes)
    list.push_back(static_cast<unsigned char>(c));
  return list;
}

Status print_decoded(const text::Tokenizer& tokenizer, std::shared_ptr<const text::Tokenizer> shared,
                     const std::string& list) {
  std::string text = list;
  if (list == "-") {
    ASSIGN_OR_RETURN(text, read_text("-"));
  }
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, parse_ids(text));
  for (const int32_t id : ids) {
    if (id >= tokenizer.vocab_size())
      return invalid_argument(
          fmt::format("--decode {}: the vocabulary ends at {}", id, tokenizer.vocab_size() - 1));
  }
  const std::string out =
      text::detokenize(std::move(shared), ids, {.skip_control = false, .at_text_start = true});
  fmt::print("{}\n", out);
  return {};
}

Status tokenize(const EngineFlags& engine, const TokenizeOptions& options) {
  ASSIGN_OR_RETURN(const std::string path, engine.model_path());
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelSource> source, ModelSource::open(path));
  ASSIGN_OR_RETURN(const text::TextModel setup, set_up_text(*source));
  const text::Tokenizer& tokenizer = *setup.tokenizer;
  if (!options.decode.empty()) return print_decoded(tokenizer, setup.tokenizer, options.decode);

  std::string text = fmt::format("{}", fmt::join(options.text, " "));
  if (options.text.empty()) {
    ASSIGN_OR_RETURN(text, read_text("-"));
  }
  ASSIGN_OR_RETURN(
      std::vector<int32_t> ids,
      tokenizer.encode(text, options.no_special ? text::Special::kPlain : text::Special::kParse));
  if (options.bos) ids.insert(ids.begin(), tokenizer.prefix().begin(), tokenizer.prefix().end());

  if (options.json) {
    boost::json::array list, pieces;
    for (const int32_t id : ids) {
      list.push_back(id);
      pieces.push_back(json_piece(tokenizer.token_bytes(id)));
    }
    fmt::print("{}\n", json_for_terminal(
                           boost::json::serialize(boost::json::object{{"ids", list}, {"pieces", pieces}})));
  } else if (options.ids) {
    fmt::print("[{}]\n", fmt::join(ids, ", "));
  } else {
    for (const int32_t id : ids)
      fmt::print("{:>8}  {}\n", id, quote(tokenizer.token_bytes(id), kQuoteAll));
  }
  return {};
}

}  // namespace

int tokenize_verb(Arguments args) {
  EngineFlags engine;
  TokenizeOptions options;
  Flags flags("tokenize", "turn text into token ids and back");
  flags.example("invar tokenize \"Hello there\"", "one id and its piece per line");
  flags.example("invar tokenize --ids < notes.txt > ids.json", "a JSON array, for invar logits");
  flags.example("invar tokenize --decode 19556,665", "text from ids");
  flags.rest("TEXT...", &options.text, "the text; without it standard input, every byte of it");
  flags.section("Output");
  flags.on("--ids", &options.ids, "only the ids, as a JSON array");
  flags.on("--json", &options.json, "one JSON object with ids and pieces");
  flags.on("--no-special", &options.no_special, "text like <|im_end|> is plain text, not a special token");
  flags.on("--bos", &options.bos, "with the tokens that the tokenizer puts in front of a prompt");
  flags.text("--decode", &options.decode, "IDS", "the other way: ids such as 1,2,3 or - for standard input");
  engine.declare_model(flags);
  if (const auto end = parse_or_end(flags, args)) return *end;
  if (options.ids && options.json)
    return fail_usage(invalid_argument("give either --ids or --json, not both"));
  for (const auto& [given, name] :
       {std::pair(options.ids, "--ids"), std::pair(options.json, "--json"), std::pair(options.bos, "--bos"),
        std::pair(options.no_special, "--no-special")}) {
    if (given && !options.decode.empty())
      return fail_usage(invalid_argument(fmt::format(
          "{} is about turning text into ids, --decode the other way: give either of them, not both", name)));
  }
  if (!options.decode.empty() && !options.text.empty())
    return fail_usage(invalid_argument("--decode takes ids, not text; leave the text out"));
  if (const Status s = tokenize(engine, options); !s.ok()) return fail(s);
  return 0;
}

}  // namespace invar
