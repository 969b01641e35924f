#pragma once
// Flags: the command line of one verb. Declares options with their help text, parses the arguments into
// borrowed variables and reports errors that name the flag, what was expected and, for a mistyped name, the
// nearest one. The parsing library behind it is included in flags.cc only. Main thread.

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace invar {

class Flags {
 public:
  // summary: one line for the help page. Borrowed targets of the calls below must outlive parse().
  Flags(std::string verb, std::string summary);
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  // Options that follow are listed under this title.
  void section(std::string title);

  // names: "-m,--model". value: how the help calls the argument, "FILE". An empty text is a usage error.
  void text(const std::string& names, std::string* target, const std::string& value, const std::string& help);
  void texts(const std::string& names, std::vector<std::string>* target, const std::string& value,
             const std::string& help);  // may be given several times
  void choice(const std::string& names, std::string* target, std::vector<std::string> choices,
              const std::string& help);
  void integer(const std::string& names, int32_t* target, const std::string& help, int64_t least = 0,
               int64_t most = std::numeric_limits<int32_t>::max());
  void number(const std::string& names, float* target, const std::string& help, double least, double most);
  void unsigned64(const std::string& names, uint64_t* target, bool* given, const std::string& help);
  void bytes(const std::string& names, uint64_t* target, const std::string& help);  // "2GiB"
  // A size, or `word` for none: 0.
  void bytes_or(const std::string& names, uint64_t* target, const std::string& word, const std::string& help);
  // Whatever `take` understands; its errors name the flag.
  void parsed(const std::string& names, const std::string& value, const std::string& help,
              std::function<Status(const std::string&)> take);
  void on(const std::string& names, bool* target, const std::string& help);

  // Arguments without a flag, in order.
  void rest(const std::string& value, std::vector<std::string>* target, const std::string& help);

  void example(std::string command, std::string what);
  void note(std::string paragraph);  // printed after the options

  // False: --help was asked for and is to be printed. An error is a usage error.
  Result<bool> parse(std::span<const std::string> args);
  std::string help() const;

  // After parse(): whether the flag of that long name was on the command line, and the long name of the first
  // one of these sections that was ("": none).
  bool given(const std::string& name) const;
  std::string first_given(const std::vector<std::string>& sections) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A value as messages show it: cut when long, '' when empty, no control characters.
std::string shown_value(std::string_view text);

// "512" -> 512; errors name `what`, the text and the range.
Result<int64_t> parse_integer(const std::string& what, const std::string& text, int64_t least, int64_t most);
Result<double> parse_number(const std::string& what, const std::string& text, double least, double most);

}  // namespace invar
