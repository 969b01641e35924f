#include "text/control_spellings.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/utf8.h"
#include "text/code_points.h"

namespace invar::text {
namespace {

bool is_letter_like(char32_t c) {
  return c < 0x80 && ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'));
}

// Punctuation that gives a spelling away. The other kind is common in names, paths, numbers and JSON, which
// templates take apart themselves.
bool is_telling(char32_t c) {
  return !is_letter_like(c) &&
         (c >= 0x80 || std::strchr(" \t\r\n_-./:,'\"\\{}", static_cast<char>(c)) == nullptr);
}

// SentencePiece vocabularies write the blank of a piece as U+2581, in a text it may be either.
std::string with_piece_blanks(std::string_view spelling) {
  std::string out;
  for (const char c : spelling)
    c == ' ' ? out.append("\u2581") : out.append(1, c);
  return out;
}

// The characters of a text as a set: letters without case, digits, and what else tags are made of.
uint64_t tag_characters(std::string_view text) {
  constexpr std::string_view kOthers = "_/<>";
  uint64_t set = 0;
  for (const char c : text) {
    const size_t other = std::min(kOthers.find(c), kOthers.size());
    const bool lower = c >= 'a' && c <= 'z', upper = c >= 'A' && c <= 'Z', digit = c >= '0' && c <= '9';
    set |= uint64_t{1} << (lower   ? size_t(c - 'a')
                           : upper ? size_t(c - 'A')
                           : digit ? 26 + size_t(c - '0')
                                   : 36 + other);
  }
  return set;
}

bool is_blank(char c) {
  return std::string_view(" \t\n\r\v\f").find(c) != std::string_view::npos;
}

// Tokens may be declared to take the blanks beside them along.
Result<bool> takes_blanks(const Tokenizer& tokenizer, std::string_view spelling, bool behind) {
  const std::string token(spelling);
  ASSIGN_OR_RETURN(const auto with, tokenizer.encode(behind ? token + " a" : "a " + token, Special::kParse));
  ASSIGN_OR_RETURN(const auto without, tokenizer.encode(behind ? token + "a" : "a" + token, Special::kParse));
  return with == without;
}

// Plain text that follows a control token. Some SentencePiece vocabularies put a blank in front of a text
// only where it begins; it then stands behind a character that merges with nothing, whose ids are taken off
// again.
Result<std::vector<int32_t>> encode_behind(const Tokenizer& tokenizer, std::string_view control,
                                           std::string_view text) {
  ASSIGN_OR_RETURN(const auto behind, tokenizer.encode(std::string(control) + "a", Special::kParse));
  ASSIGN_OR_RETURN(const auto alone, tokenizer.encode("a", Special::kPlain));
  if (behind.size() == alone.size() + 1 && std::equal(alone.begin(), alone.end(), behind.begin() + 1))
    return tokenizer.encode(text, Special::kPlain);
  constexpr const char* kAnchor = "\x01";
  ASSIGN_OR_RETURN(const auto anchor, tokenizer.encode(kAnchor, Special::kPlain));
  ASSIGN_OR_RETURN(auto ids, tokenizer.encode(kAnchor + std::string(text), Special::kPlain));
  if (ids.size() < anchor.size() || !std::equal(anchor.begin(), anchor.end(), ids.begin()))
    return tokenizer.encode(text, Special::kPlain);
  ids.erase(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(anchor.size()));
  return ids;
}

}  // namespace

ControlSpellings::ControlSpellings(const Tokenizer& tokenizer) : matcher_({}) {
  std::vector<std::string> spellings;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_control(id)) continue;
    std::string spelling(tokenizer.token_bytes(id));
    if (spelling.empty() || !is_utf8(spelling)) continue;  // no text holds it
    if (std::string other = with_piece_blanks(spelling); other != spelling) {
      spellings.push_back(std::move(other));
      ids_.push_back(id);
    }
    spellings.push_back(std::move(spelling));
    ids_.push_back(id);
  }
  const std::vector<std::string_view> views(spellings.begin(), spellings.end());
  matcher_ = ByteMatcher(views);

  for (const std::string_view spelling : views) {
    const std::u32string text = code_points(spelling);
    const bool telling = std::any_of(text.begin(), text.end(), is_telling);
    for (const char32_t c : text) {
      const auto [at, fresh] = numbers_.emplace(c, static_cast<int32_t>(characters_.size()));
      if (fresh) {
        characters_.push_back(c);
        pivots_.push_back(false);
      }
      if (!telling || is_telling(c)) pivots_[static_cast<size_t>(at->second)] = true;
    }
    const auto first = std::find_if_not(text.begin(), text.end(), is_telling);
    const auto last = std::find_if_not(text.rbegin(), text.rend(), is_telling).base();
    if (first >= last) continue;
    std::string core;
    for (auto c = first; c != last; ++c)
      append_utf8(*c, core);
    if (core.size() > 1 && core[0] == '/') cores_.insert(core.substr(1));
    cores_.insert(std::move(core));
  }

  for (const std::string_view spelling : views)
    if (spelling.front() == '<' && spelling.back() == '>') tags_.push_back(tag_characters(spelling));
  std::sort(tags_.begin(), tags_.end());
  tags_.erase(std::unique(tags_.begin(), tags_.end()), tags_.end());
}

bool ControlSpellings::hides_in(std::string_view tag) const {
  const uint64_t there = tag_characters(tag);
  return std::any_of(tags_.begin(), tags_.end(), [&](uint64_t needed) { return (needed & ~there) == 0; });
}

size_t ControlSpellings::length_at(std::string_view text) const {
  size_t longest = 0;
  ByteMatcher::State state = ByteMatcher::kStart;
  for (size_t i = 0; i < text.size(); ++i) {
    state = matcher_.child(state, static_cast<uint8_t>(text[i]));
    if (state == ByteMatcher::kNone) break;
    if (matcher_.spelled(state) >= 0) longest = i + 1;
  }
  return longest;
}

int32_t ControlSpellings::number_of(char32_t character) const {
  const auto found = numbers_.find(character);
  return found == numbers_.end() ? -1 : found->second;
}

ControlSpellings::Scan ControlSpellings::scan(std::string_view text, const std::vector<bool>& foreign) const {
  Scan out;
  for (size_t begin = 0; begin < text.size();) {
    Found own{begin, begin, kNoToken};
    size_t plain_end = begin;
    bool clean = true;
    ByteMatcher::State state = ByteMatcher::kStart;
    for (size_t i = begin; i < text.size(); ++i) {
      state = matcher_.child(state, static_cast<uint8_t>(text[i]));
      if (state == ByteMatcher::kNone) break;
      clean = clean && (foreign.empty() || !foreign[i]);
      const int32_t pattern = matcher_.spelled(state);
      if (pattern < 0) continue;
      if (clean)
        own = {begin, i + 1, ids_[static_cast<size_t>(pattern)]};
      else
        plain_end = i + 1;
    }
    if (plain_end > begin) out.plain.emplace_back(begin, plain_end);
    if (own.end > begin) out.control.push_back(own);
    begin = std::max(own.end, begin + 1);
  }
  return out;
}

std::vector<int32_t> ControlSpellings::control_ids(std::string_view text,
                                                   const std::vector<bool>& foreign) const {
  std::vector<int32_t> ids;
  for (const Found& found : scan(text, foreign).control)
    ids.push_back(found.id);
  return ids;
}

Result<std::vector<int32_t>> ControlSpellings::encode(const Tokenizer& tokenizer, std::string_view text,
                                                      const std::vector<bool>& foreign) const {
  const Scan found = scan(text, foreign);
  std::vector<int32_t> ids;
  const auto append = [&ids](Result<std::vector<int32_t>> more) -> Status {
    if (more.ok()) ids.insert(ids.end(), more->begin(), more->end());
    return more.ok() ? Status() : more.status();
  };
  // The tokenizer cuts at control tokens too, so what lies between two of them can be read in either way
  // without a change of the rest.
  size_t parsed_from = 0, next_plain = 0;
  for (size_t k = 0; k <= found.control.size() && !found.plain.empty(); ++k) {
    const bool has_left = k > 0, has_right = k < found.control.size();
    size_t begin = has_left ? found.control[k - 1].end : 0;
    size_t end = has_right ? found.control[k].begin : text.size();
    while (next_plain < found.plain.size() && found.plain[next_plain].second <= begin)
      ++next_plain;
    if (next_plain == found.plain.size()) break;
    if (found.plain[next_plain].first >= end || begin == end) continue;

    if (begin > parsed_from)
      RETURN_IF_ERROR(
          append(tokenizer.encode(text.substr(parsed_from, begin - parsed_from), Special::kParse)));
    parsed_from = end;
    const auto spelled = [&](const Found& f) { return text.substr(f.begin, f.end - f.begin); };
    if (has_left) {
      ASSIGN_OR_RETURN(const bool takes, takes_blanks(tokenizer, spelled(found.control[k - 1]), true));
      while (takes && begin < end && is_blank(text[begin]))
        ++begin;
    }
    if (has_right) {
      ASSIGN_OR_RETURN(const bool takes, takes_blanks(tokenizer, spelled(found.control[k]), false));
      while (takes && begin < end && is_blank(text[end - 1]))
        --end;
    }
    const std::string_view plain = text.substr(begin, end - begin);
    if (plain.empty()) continue;
    RETURN_IF_ERROR(append(has_left ? encode_behind(tokenizer, spelled(found.control[k - 1]), plain)
                                    : tokenizer.encode(plain, Special::kPlain)));
  }
  if (parsed_from < text.size())
    RETURN_IF_ERROR(append(tokenizer.encode(text.substr(parsed_from), Special::kParse)));

  // Nothing but what was let through. Tokenizers that normalize a text first could read a spelling out of
  // other characters; a token for unknown characters is one that plain text makes too.
  std::unordered_map<int32_t, size_t> expected;
  for (const Found& f : found.control)
    ++expected[f.id];
  std::vector<int32_t> extra;
  for (const int32_t id : ids) {
    if (!tokenizer.is_control(id)) continue;
    size_t& left = expected[id];
    left > 0 ? void(--left) : extra.push_back(id);
  }
  if (!extra.empty()) {
    ASSIGN_OR_RETURN(const auto plain, tokenizer.encode(text, Special::kPlain));
    const std::unordered_set<int32_t> usual(plain.begin(), plain.end());
    for (const int32_t id : extra) {
      if (!usual.contains(id)) {
        return unsupported("the tokenizer reads the control token '" +
                           std::string(tokenizer.token_bytes(id)) + "' out of a text that does not spell it");
      }
    }
  }
  return ids;
}

}  // namespace invar::text
