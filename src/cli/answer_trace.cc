#include "cli/answer_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "api/json_text.h"
#include "base/quote.h"
#include "base/utf8.h"

namespace invar {
namespace {

namespace json = boost::json;

constexpr size_t kShownBytes = 300;          // of a value
constexpr size_t kBefore = 30, kAfter = 60;  // bytes of a text around its difference
constexpr const char* kNothing = "nothing";

// Texts that a stream sends in pieces.
constexpr std::string_view kGrowing[] = {"content",           "text",      "arguments",
                                         "reasoning_content", "reasoning", "refusal",
                                         "partial_json",      "thinking",  "delta"};

bool is_one_of(std::string_view key, std::span<const std::string_view> keys) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

// What may differ between equal answers, at any depth.
bool may_differ(std::string_view key) {
  return key == "created" || key == "created_at" || key == "cached_tokens";
}

bool is_left_out(std::string_view path, std::string_view key) {
  return path == "id" || may_differ(key);
}

// An entry of a list is compared as a whole, without what may differ.
json::value without_times(const json::value& value) {
  if (value.is_object()) {
    json::object out;
    for (const auto& [key, member] : value.get_object()) {
      if (!may_differ(key)) out[key] = without_times(member);
    }
    return out;
  }
  if (!value.is_array()) return value;
  json::array out;
  for (const json::value& item : value.get_array())
    out.push_back(without_times(item));
  return out;
}

std::string json_of(const json::value& value) {
  std::string out;
  api::append_json(out, value);
  return out;
}

size_t char_start(std::string_view text, size_t at) {
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80)
    --at;
  return at;
}

// The text around a position, as a message shows it.
std::string excerpt(std::string_view text, size_t at) {
  if (at >= text.size() && text.empty()) return kNothing;
  const size_t begin = char_start(text, at > kBefore ? at - kBefore : 0);
  const size_t end = char_start(text, std::min(text.size(), at + kAfter));
  return fmt::format("{}{}{}", begin > 0 ? "..." : "", quote(text.substr(begin, end - begin), kQuoteAll),
                     end < text.size() ? "..." : "");
}

// Inside two values that differ: where they first do. Appends to the path.
void narrow(const json::value& a, const json::value& b, AnswerTrace::Difference& d) {
  if (a.is_object() && b.is_object()) {
    for (const auto& [key, value] : a.get_object()) {
      const json::value* other = b.get_object().if_contains(key);
      if (other != nullptr && json_of(value) == json_of(*other)) continue;
      d.field += "." + std::string(key);
      if (other != nullptr) return narrow(value, *other, d);
      d.recorded = json_of(value), d.replayed = kNothing;
      return;
    }
  } else if (a.is_array() && b.is_array()) {
    const json::array &x = a.get_array(), &y = b.get_array();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (json_of(x[i]) == json_of(y[i])) continue;
      d.field += fmt::format("[{}]", i);
      return narrow(x[i], y[i], d);
    }
  }
  d.recorded = json_of(a), d.replayed = json_of(b);
}

std::string shown(const std::string& value) {
  return printable(value, kShownBytes);
}

}  // namespace

size_t AnswerTrace::Track::frame_of(size_t position) const {
  const auto after = std::upper_bound(at.begin(), at.end(), position,
                                      [](size_t p, const auto& entry) { return p < entry.first; });
  return after == at.begin() ? 0 : std::prev(after)->second;
}

void AnswerTrace::add(std::string_view data) {
  ++frames_;
  const auto parsed = api::parse_json(data);
  if (parsed.ok() && parsed->is_object())
    walk(*parsed, "", "");
  else
    add_item("data", std::string(data), true);
}

void AnswerTrace::walk(const json::value& value, const std::string& path, std::string_view key) {
  if (is_left_out(path, key)) return;
  if (value.is_object()) {
    for (const auto& [name, member] : value.get_object())
      walk(member, path.empty() ? std::string(name) : fmt::format("{}.{}", path, std::string_view(name)),
           name);
  } else if (value.is_array()) {
    for (const json::value& item : value.get_array()) {
      const json::value* index = item.is_object() ? item.get_object().if_contains("index") : nullptr;
      if (index != nullptr && index->is_int64())
        walk(item, fmt::format("{}[{}]", path, index->get_int64()), "");
      else
        add_item(path + "[]", json_of(without_times(item)), true);
    }
  } else if (value.is_string() && is_one_of(key, kGrowing)) {
    const Key at{path, Kind::kText};
    const auto [track, is_new] = tracks_.try_emplace(at);
    if (is_new) order_.push_back(at);
    track->second.at.emplace_back(track->second.text.size(), frames_);
    const json::string& text = value.get_string();
    track->second.text.append(text.data(), text.size());
  } else {
    add_item(path, json_of(value), false);
  }
}

void AnswerTrace::add_item(const std::string& path, std::string json, bool always) {
  const Key key{path, Kind::kItems};
  const auto [track, is_new] = tracks_.try_emplace(key);
  if (is_new) order_.push_back(key);
  std::vector<std::string>& items = track->second.items;
  if (!always && !items.empty() && items.back() == json) return;
  track->second.at.emplace_back(items.size(), frames_);
  items.push_back(std::move(json));
}

const std::string* AnswerTrace::value(const std::string& field) const {
  const auto found = tracks_.find({field, Kind::kItems});
  return found == tracks_.end() || found->second.items.empty() ? nullptr : &found->second.items.back();
}

std::optional<AnswerTrace::Difference> AnswerTrace::compare(const Key& key, const Track& recorded,
                                                            const Track& replayed, bool whole) {
  const auto& [path, kind] = key;
  const size_t a = recorded.size(kind), b = replayed.size(kind), both = std::min(a, b);
  size_t at = 0;
  if (kind == Kind::kText) {
    at = size_t(
        std::mismatch(recorded.text.begin(), recorded.text.begin() + ptrdiff_t(both), replayed.text.begin())
            .first -
        recorded.text.begin());
  } else {
    while (at < both && recorded.items[at] == replayed.items[at])
      ++at;
  }
  if (at == both && (a == b || (!whole && a < b))) return std::nullopt;
  Difference d;
  d.frame = at < a || replayed.at.empty() ? recorded.frame_of(at) : replayed.frame_of(at);
  d.field = path;
  if (kind == Kind::kText) {
    at = char_start(recorded.text, at);
    d.recorded = excerpt(recorded.text, at);
    d.replayed = excerpt(replayed.text, at);
    return d;
  }
  // A list says which entry; of a value that changes, the last one is meant in most answers.
  if (path.ends_with("[]")) d.field = fmt::format("{}[{}]", path.substr(0, path.size() - 2), at);
  if (at < a && at < b) {
    const auto x = api::parse_json(recorded.items[at]), y = api::parse_json(replayed.items[at]);
    if (x.ok() && y.ok())
      narrow(*x, *y, d);
    else
      d.recorded = recorded.items[at], d.replayed = replayed.items[at];
  } else {
    d.recorded = at < a ? recorded.items[at] : kNothing;
    d.replayed = at < b ? replayed.items[at] : kNothing;
  }
  d.recorded = shown(d.recorded), d.replayed = shown(d.replayed);
  return d;
}

std::optional<AnswerTrace::Difference> AnswerTrace::first_difference(const AnswerTrace& recorded,
                                                                     const AnswerTrace& replayed,
                                                                     bool whole) {
  static const Track kEmpty;
  std::optional<Difference> first;
  const auto look = [&](const Key& key) {
    const auto a = recorded.tracks_.find(key), b = replayed.tracks_.find(key);
    auto d = compare(key, a == recorded.tracks_.end() ? kEmpty : a->second,
                     b == replayed.tracks_.end() ? kEmpty : b->second, whole);
    if (d.has_value() && (!first.has_value() || d->frame < first->frame)) first = std::move(d);
  };
  for (const Key& key : recorded.order_)
    look(key);
  for (const Key& key : replayed.order_) {
    if (!recorded.tracks_.contains(key)) look(key);
  }
  return first;
}

}  // namespace invar
