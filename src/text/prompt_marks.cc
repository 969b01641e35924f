#include "text/prompt_marks.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include "text/code_points.h"

namespace invar::text {
namespace {

// Planes 15 and 16 are private use.
constexpr char32_t kFirstMark = 0xF0000, kMarkEnd = 0x110000;

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The four digits of \uXXXX at the front of the text, -1: there are none.
int32_t unicode_escape(std::string_view text) {
  if (text.size() < 6 || text[0] != '\\' || text[1] != 'u') return -1;
  int32_t code = 0;
  for (size_t i = 2; i < 6; ++i) {
    const int digit = hex_value(text[i]);
    if (digit < 0) return -1;
    code = code * 16 + digit;
  }
  return code;
}

// A character that is escaped as one or two \uXXXX; returns how many bytes that takes, 0: there is none.
size_t escaped_character(std::string_view text, char32_t* c) {
  const int32_t high = unicode_escape(text);
  if (high < 0) return 0;
  *c = static_cast<char32_t>(high);
  if (high < 0xD800 || high > 0xDBFF) return 6;
  const int32_t low = unicode_escape(text.substr(6));
  if (low < 0xDC00 || low > 0xDFFF) return 6;
  *c = 0x10000u + ((static_cast<char32_t>(high) - 0xD800u) << 10) + (static_cast<char32_t>(low) - 0xDC00u);
  return 12;
}

// Takes a string literal off the front of well-formed JSON.
std::string take_string(std::string_view& json) {
  std::string out;
  json.remove_prefix(1);
  while (!json.empty() && json[0] != '"') {
    if (json[0] != '\\' || json.size() < 2) {
      out.push_back(json[0]);
      json.remove_prefix(1);
      continue;
    }
    char32_t c = 0;
    if (const size_t length = escaped_character(json, &c); length > 0) {
      append_utf8(c, out);
      json.remove_prefix(length);
      continue;
    }
    constexpr std::string_view kNames = "bfnrt", kMeanings = "\b\f\n\r\t";
    const size_t known = kNames.find(json[1]);
    out.push_back(known == std::string_view::npos ? json[1] : kMeanings[known]);
    json.remove_prefix(2);
  }
  if (!json.empty()) json.remove_prefix(1);
  return out;
}

void append_json_string(std::string_view text, std::string& out) {
  out.push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
}

// Bytes of a tag at the front of the text, <name> or </name>, 0: there is none. Templates look for such tags.
size_t tag_length(std::string_view text) {
  size_t i = 1;
  if (i < text.size() && text[i] == '/') ++i;
  const size_t name = i;
  while (i < text.size() && ((text[i] >= 'a' && text[i] <= 'z') || (text[i] >= 'A' && text[i] <= 'Z') ||
                             (text[i] >= '0' && text[i] <= '9') || text[i] == '_'))
    ++i;
  return i > name && i < text.size() && text[i] == '>' ? i + 1 : 0;
}

struct Container {
  bool object;
  bool awaits_key;
  bool free_names;  // its keys are the request's own words: arguments, names of properties
  bool free_below;  // ... and those of everything in it
  std::string key;  // the current one; that of the parent in a list
};

}  // namespace

Result<PromptMarks> PromptMarks::choose(const ControlSpellings& control, std::string_view context_json,
                                        std::string_view rendered) {
  const auto wanted = static_cast<char32_t>(control.characters());
  if (wanted == 0) return PromptMarks(control, kFirstMark);
  constexpr char32_t kBlock = 4096;
  constexpr size_t kBlocks = (kMarkEnd - kFirstMark) / kBlock;
  std::array<bool, kBlocks> taken{};
  const auto take = [&taken](char32_t c) {
    if (c >= kFirstMark && c < kMarkEnd) taken[(c - kFirstMark) / kBlock] = true;
  };
  for (std::string_view rest : {context_json, rendered}) {
    while (!rest.empty()) {
      char32_t c = 0;
      if (const size_t length = rest[0] == '\\' ? escaped_character(rest, &c) : 0; length > 0) {
        take(c);
        rest.remove_prefix(1);
        continue;
      }
      if (static_cast<unsigned char>(rest[0]) < 0xF3) {
        rest.remove_prefix(1);
        continue;
      }
      take(take_code_point(rest));
    }
  }
  const size_t blocks = (wanted + kBlock - 1) / kBlock;
  for (size_t begin = 0, i = 0; i < kBlocks; ++i) {
    if (taken[i]) begin = i + 1;
    if (i + 1 - begin == blocks)
      return PromptMarks(control, kFirstMark + static_cast<char32_t>(begin) * kBlock);
  }
  return invalid_argument("messages: they hold characters of every private-use block; remove some");
}

std::string PromptMarks::marked_string(const std::string& text, bool is_name, Reach reach) {
  std::vector<bool> marked(text.size());  // by first byte of the character
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t length = control_->length_at(std::string_view(text).substr(i));
    if (length == 0) continue;
    size_t at = reach == Reach::kLasts ? i + length - 1 : i;
    while (at > i && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80)
      --at;
    marked[at] = true;
  }
  if (reach == Reach::kAll && is_name && control_->is_core(text)) marked[0] = true;

  std::string out;
  size_t in_tag = 0;  // bytes left of a tag
  for (std::string_view rest = text; !rest.empty();) {
    const size_t at = text.size() - rest.size();
    if (rest[0] == '<' && in_tag == 0 && !marked[at]) {
      const size_t tag = tag_length(rest);
      if (!control_->hides_in(rest.substr(0, tag))) in_tag = tag;
    }
    const char32_t c = take_code_point(rest);
    const size_t length = text.size() - rest.size() - at;
    const int32_t number = control_->number_of(c);
    const bool telling = reach == Reach::kAll && in_tag == 0 && number >= 0 && control_->is_pivot(number);
    if (number >= 0 && (marked[at] || telling)) {
      append_utf8(first_ + static_cast<char32_t>(number), out);
      marked_any_ = true;
    } else {
      out.append(text, at, length);
    }
    in_tag -= std::min(in_tag, length);
  }
  return out;
}

std::string PromptMarks::mark(std::string_view json, Reach reach) {
  marked_any_ = false;
  std::string out;
  out.reserve(json.size() + json.size() / 4);
  std::vector<Container> open;
  while (!json.empty()) {
    const char c = json[0];
    if (c == '"') {
      const std::string text = take_string(json);
      const bool is_key = !open.empty() && open.back().object && open.back().awaits_key;
      bool is_name = true;
      if (is_key) {
        open.back().awaits_key = false;
        open.back().key = text;
        is_name = open.back().free_names;
      } else if (!open.empty()) {
        is_name = open.back().free_names || (open.back().key != "role" && open.back().key != "type");
      }
      append_json_string(marked_string(text, is_name, reach), out);
      continue;
    }
    if (c == '{' || c == '[') {
      Container inner{
          .object = c == '{', .awaits_key = c == '{', .free_names = false, .free_below = false, .key = ""};
      if (!open.empty()) {
        inner.key = open.back().key;
        inner.free_below = open.back().free_below || inner.key == "arguments";
        inner.free_names = inner.free_below || (open.back().object && inner.key == "properties");
      }
      open.push_back(std::move(inner));
    } else if ((c == '}' || c == ']') && !open.empty()) {
      open.pop_back();
    } else if (c == ',' && !open.empty()) {
      open.back().awaits_key = open.back().object;
    }
    out.push_back(c);
    json.remove_prefix(1);
  }
  return out;
}

std::string PromptMarks::restore(std::string_view rendered, std::vector<bool>* foreign) const {
  std::string out;
  out.reserve(rendered.size());
  foreign->clear();
  const auto characters = static_cast<char32_t>(control_->characters());
  while (!rendered.empty()) {
    char32_t c = 0;
    const size_t escaped = rendered[0] == '\\' ? escaped_character(rendered, &c) : 0;
    std::string_view rest = rendered.substr(escaped);
    if (escaped == 0) c = take_code_point(rest);
    const size_t length = rendered.size() - rest.size();
    if (c >= first_ && c - first_ < characters) {
      const char32_t original = control_->character(static_cast<int32_t>(c - first_));
      if (escaped > 0 && original > 0x7E)
        out += fmt::format("\\u{:04x}", static_cast<uint32_t>(original));
      else
        append_utf8(original, out);
      foreign->resize(out.size(), true);
    } else if (escaped > 0) {  // not a mark: one byte on, the rest of the escape is looked at by itself
      out.push_back(rendered[0]);
      foreign->resize(out.size(), false);
      rest = rendered.substr(1);
    } else {
      out.append(rendered.substr(0, length));
      foreign->resize(out.size(), false);
    }
    rendered = rest;
  }
  return out;
}

}  // namespace invar::text
