#include "cli/quality/scored_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <limits>

#include "base/quote.h"
#include "base/utf8.h"
#include "cli/prompts.h"
#include "cli/quality/built_in_text.h"
#include "cli/text_setup.h"

namespace invar {
namespace {

constexpr size_t kShownBytes = 60;

Result<text::TextModel> text_of(const Model& model) {
  return set_up_text(model.source(), {.vocab = model.info().vocab});
}

Status too_short(const std::string& name) {
  return invalid_argument(fmt::format("{}: has no two tokens; there is nothing to score", name));
}

}  // namespace

Result<std::vector<int32_t>> parse_token_ids(const std::string& json, const std::string& what) {
  boost::json::error_code error;
  const boost::json::value v = boost::json::parse(json, error);
  if (error) return invalid_argument(fmt::format("{}: not JSON: {}", what, error.message()));
  const auto* array = v.if_array();
  if (array == nullptr || array->empty())
    return invalid_argument(fmt::format("{}: must be an array of token ids such as [1, 42]", what));
  std::vector<int32_t> ids;
  for (const auto& x : *array) {
    const auto* id = x.if_int64();
    if (id == nullptr || *id < 0 || *id > std::numeric_limits<int32_t>::max())
      return invalid_argument(fmt::format("{}: element {} is not a token id", what, ids.size()));
    ids.push_back(int32_t(*id));
  }
  return ids;
}

void ScoredTextFlags::declare(Flags& flags) {
  flags.section("Text");
  flags.text("-f,--file", &file_, "FILE",
             "the text, UTF-8; - is standard input (default: a short built-in text)");
  flags.text("--tokens", &tokens_, "FILE",
             "a JSON array of token ids instead; nothing is put in front of windows");
  flags.integer(
      "--window", &window_,
      "tokens that a model sees at once, with those that its tokenizer puts before a prompt (default: "
      "512, or the context if that is shorter)",
      2);
  flags.integer(
      "--stride", &stride_,
      "tokens by which the window moves on; each token is scored once, in the first window that has it "
      "(default: half of the window)",
      1);
}

Status ScoredTextFlags::check() const {
  if (!file_.empty() && !tokens_.empty()) return invalid_argument("give either --file or --tokens, not both");
  return {};
}

Result<std::string> ScoredTextFlags::given_text() const {
  auto read = read_text(file_);
  if (!read.ok()) return read.status().with_context("--file");
  std::string text(without_bom(*read));
  if (!is_utf8(text))
    return invalid_argument(fmt::format(
        "--file {}: not UTF-8; convert it first, for example with iconv -f latin1 -t utf8", file_));
  return text;
}

Result<std::vector<int32_t>> ScoredTextFlags::given_tokens() const {
  auto json = read_text(tokens_);
  if (!json.ok()) return json.status().with_context("--tokens");
  return parse_token_ids(*json, "--tokens " + tokens_);
}

Status ScoredTextFlags::check_text() const {
  if (!tokens_.empty() && tokens_ != "-") return given_tokens().status();
  if (file_.empty() || file_ == "-") return {};
  ASSIGN_OR_RETURN(const std::string text, given_text());
  return text.empty() ? too_short(file_) : Status();
}

Result<ScoredText> ScoredTextFlags::read(const Model& model, int32_t context) const {
  ScoredText out;
  std::vector<int32_t> ids, prefix;
  if (!tokens_.empty()) {
    out.name = tokens_ == "-" ? "standard input" : tokens_;
    ASSIGN_OR_RETURN(ids, given_tokens());
  } else {
    std::string text(built_in_text());
    out.name = "built-in text";
    if (!file_.empty()) {
      out.name = file_ == "-" ? "standard input" : file_;
      ASSIGN_OR_RETURN(text, given_text());
    }
    out.bytes = int64_t(text.size());
    auto setup = text_of(model);
    if (!setup.ok())
      return setup.status().with_context("the text needs a tokenizer (or give ids with --tokens)");
    // What a text spells is text: a document that mentions <|im_end|> is no conversation.
    ASSIGN_OR_RETURN(ids, setup->tokenizer->encode(text, text::Special::kPlain));
    prefix.assign(setup->tokenizer->prefix().begin(), setup->tokenizer->prefix().end());
  }
  for (const int32_t id : ids) {
    if (id >= model.info().vocab)
      return invalid_argument(
          fmt::format("{}: id {} is outside the vocabulary of {} tokens", out.name, id, model.info().vocab));
  }
  ASSIGN_OR_RETURN(out.shape, window_shape(window_, stride_, context, int32_t(prefix.size())));
  out.tokens = int64_t(ids.size());
  out.prefix_tokens = int32_t(prefix.size());
  out.windows = score_windows(ids, prefix, out.shape);
  if (out.windows.empty()) return too_short(out.name);
  return out;
}

Status check_same_vocabulary(const Model& a, const Model& b, bool compare_tokens) {
  if (a.info().vocab != b.info().vocab)
    return invalid_argument(
        fmt::format("the vocabularies differ: {} has {} tokens, {} has {}; distributions can be compared "
                    "only over the same "
                    "tokens",
                    quote(a.source().path(), kShownBytes), a.info().vocab,
                    quote(b.source().path(), kShownBytes), b.info().vocab));
  if (!compare_tokens) return {};
  ASSIGN_OR_RETURN(const text::TextModel x, text_of(a));
  auto y = text_of(b);
  if (!y.ok())
    return y.status().with_context("the second model's tokenizer (without one, give ids with --tokens)");
  for (int32_t id = 0; id < std::max(x.tokenizer->vocab_size(), y->tokenizer->vocab_size()); ++id) {
    const auto mine = x.tokenizer->token_bytes(id), other = y->tokenizer->token_bytes(id);
    if (mine == other) continue;
    return invalid_argument(
        fmt::format("the vocabularies differ: token {} is {} in {} and {} in {}; distributions can be "
                    "compared only over the "
                    "same tokens",
                    id, quote(mine, kShownBytes), quote(a.source().path(), kShownBytes),
                    quote(other, kShownBytes), quote(b.source().path(), kShownBytes)));
  }
  return {};
}

}  // namespace invar
