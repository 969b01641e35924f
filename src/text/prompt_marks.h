#pragma once
// PromptMarks: shows which characters of a rendered prompt came from the request. Characters of the request's
// strings that could help to spell a control token are exchanged, one for one, for private-use characters
// that occur nowhere else; after rendering they are exchanged back, and their places are known. Lives for one
// request, on one thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/control_spellings.h"

namespace invar::text {

class PromptMarks {
 public:
  enum class Reach {
    // Every telling character (ControlSpellings::is_pivot), except in tags such as <think> from which no
    // template can make a spelling.
    kAll,
    kFirsts,  // the first character of each spelling that stands in a string
    kLasts,   // the last one of each
  };

  // `rendered`: the prompt without marks; neither it nor the context may hold the characters used as marks.
  // Errors (kInvalidArgument): all of them occur.
  static Result<PromptMarks> choose(const ControlSpellings& control, std::string_view context_json,
                                    std::string_view rendered);

  // The context with marks in all its strings. It must be one that ChatTemplate::render accepts.
  std::string mark(std::string_view context_json, Reach reach);
  bool marked_any() const { return marked_any_; }  // in the last call of mark()

  // The text with its marks exchanged back; (*foreign)[i]: byte i of the result was one.
  std::string restore(std::string_view rendered, std::vector<bool>* foreign) const;

 private:
  PromptMarks(const ControlSpellings& control, char32_t first) : control_(&control), first_(first) {}
  std::string marked_string(const std::string& text, bool is_name, Reach reach);

  const ControlSpellings* control_;
  char32_t first_;  // mark of character number 0
  bool marked_any_ = false;
};

}  // namespace invar::text
