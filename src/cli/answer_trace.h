#pragma once
// AnswerTrace: what an answer of the API says, apart from how it was cut into frames and when it came. Tokens
// that are ready together share a frame and choices interleave, both by chance; so each field of the JSON is
// followed on its own: text that grows is joined, lists go on, other values count when they change. Ids and
// times are left out, and the number of cached tokens. A value of one thread.

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/json/value.hpp>

namespace invar {

class AnswerTrace {
 public:
  // The next frame's data, or the body of an answer without stream. Need not be JSON.
  void add(std::string_view data);
  size_t frames() const { return frames_; }
  // The last value of a field as JSON; nullptr: it never had one.
  const std::string* value(const std::string& field) const;

  struct Difference {
    size_t frame = 0;   // of the recorded answer (of the other one, if that has more), from 1
    std::string field;  // "choices[0].delta.content"
    std::string recorded, replayed;
  };
  // The first one by the frame. whole = false: `recorded` was cut off, and what is missing at its end is no
  // difference.
  static std::optional<Difference> first_difference(const AnswerTrace& recorded, const AnswerTrace& replayed,
                                                    bool whole);

 private:
  enum class Kind { kText, kItems };
  struct Track {
    std::string text;                           // kText
    std::vector<std::string> items;             // kItems: JSON
    std::vector<std::pair<size_t, size_t>> at;  // where in text, or which item, begins in which frame

    size_t size(Kind kind) const { return kind == Kind::kText ? text.size() : items.size(); }
    size_t frame_of(size_t position) const;
  };
  using Key = std::pair<std::string, Kind>;

  void walk(const boost::json::value& value, const std::string& path, std::string_view key);
  void add_item(const std::string& path, std::string json, bool always);
  static std::optional<Difference> compare(const Key& key, const Track& recorded, const Track& replayed,
                                           bool whole);

  std::map<Key, Track> tracks_;
  std::vector<Key> order_;  // by first appearance
  size_t frames_ = 0;
};

}  // namespace invar
