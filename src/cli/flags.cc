#include "cli/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <functional>

#include "base/quote.h"
#include "base/size_text.h"
#include "base/text_distance.h"

namespace invar {
namespace {

// "-m,--model" -> {"-m", "--model"}.
std::vector<std::string> each_name(std::string_view names) {
  std::vector<std::string> out;
  while (!names.empty()) {
    const size_t end = std::min(names.find(','), names.size());
    out.emplace_back(names.substr(0, end));
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return out;
}

// "-m,--model" -> "--model", "--ctx,--context" -> "--ctx": the name that messages use.
std::string long_name(const std::string& names) {
  const auto all = each_name(names);
  for (const std::string& name : all) {
    if (name.starts_with("--")) return name;
  }
  return all.front();
}

constexpr size_t kShownBytes = 60;  // of an argument in a message

std::string display_number(double x) {
  return fmt::format("{:g}", x);
}

}  // namespace

struct Option {
  std::string section, names, value, help;
  bool is_switch = false;
  bool switched = false;
  std::vector<std::string> given;
  bool is_given() const { return switched || !given.empty(); }
  std::function<Status(const std::vector<std::string>&)> store;  // called when the option was given
};

struct Flags::Impl {
  CLI::App app;
  std::string verb, summary, section, rest_value, rest_help;
  std::vector<std::string>* rest = nullptr;
  std::deque<Option> options;  // addresses stay
  std::vector<std::pair<std::string, std::string>> examples;
  std::vector<std::string> notes;

  Option& add(const std::string& names, const std::string& value, const std::string& help) {
    Option& o = options.emplace_back();
    o.section = section, o.names = names, o.value = value, o.help = help;
    return o;
  }
  Option& add_one(const std::string& names, const std::string& value, const std::string& help,
                  std::function<Status(const std::string&)> store) {
    Option& o = add(names, value, help);
    o.store = [store = std::move(store)](const std::vector<std::string>& v) { return store(v.back()); };
    app.add_option(names, o.given)
        ->expected(1)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    return o;
  }
  std::vector<std::string> all_names() const {
    std::vector<std::string> names = {"--help"};
    for (const Option& o : options) {
      for (std::string& name : each_name(o.names))
        names.push_back(std::move(name));
    }
    return names;
  }
  // The library takes the word after "--model=" for its value.
  Status check_equals_signs(std::span<const std::string> args) const {
    for (const std::string& arg : args) {
      if (arg == "--") break;
      if (!arg.starts_with("--") || !arg.ends_with('=')) continue;
      const std::string name = arg.substr(0, arg.size() - 1);
      for (const Option& o : options) {
        const auto names = each_name(o.names);
        if (std::find(names.begin(), names.end(), name) != names.end()) return needs(o, name);
      }
    }
    return {};
  }
  static Status needs(const Option& o, const std::string& name) {
    return invalid_argument(o.is_switch ? name + " takes no value"
                                        : fmt::format("{0} needs a value: {0} {1}", name, o.value));
  }
};

Flags::Flags(std::string verb, std::string summary) : impl_(std::make_unique<Impl>()) {
  impl_->verb = std::move(verb);
  impl_->summary = std::move(summary);
  impl_->app.allow_extras();
  impl_->app.set_help_flag("-h,--help");
}
Flags::~Flags() = default;

void Flags::section(std::string title) {
  impl_->section = std::move(title);
}

void Flags::text(const std::string& names, std::string* target, const std::string& value,
                 const std::string& help) {
  impl_->add_one(names, value, help, [=, name = long_name(names)](const std::string& v) {
    if (v.empty())
      return invalid_argument(
          fmt::format("{0}: the value is empty; give {0} {1}, or leave it out", name, value));
    *target = v;
    return Status();
  });
}

void Flags::texts(const std::string& names, std::vector<std::string>* target, const std::string& value,
                  const std::string& help) {
  Option& o = impl_->add(names, value, help);
  o.store = [target](const std::vector<std::string>& v) {
    *target = v;
    return Status();
  };
  impl_->app.add_option(names, o.given)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void Flags::choice(const std::string& names, std::string* target, std::vector<std::string> choices,
                   const std::string& help) {
  const std::string name = long_name(names);
  const std::string list = fmt::format("{}", fmt::join(choices, "|"));
  impl_->add_one(names, list, help, [=](const std::string& v) {
    for (const std::string& c : choices) {
      if (c == v) {
        *target = v;
        return Status();
      }
    }
    const std::string near = nearest_text(v, choices);
    return invalid_argument(fmt::format("{} {}: must be one of {}{}", name, shown_value(v),
                                        fmt::join(choices, ", "),
                                        near.empty() ? "" : fmt::format("; did you mean {}?", near)));
  });
}

void Flags::integer(const std::string& names, int32_t* target, const std::string& help, int64_t least,
                    int64_t most) {
  impl_->add_one(names, "N", help, [=, name = long_name(names)](const std::string& v) {
    ASSIGN_OR_RETURN(const int64_t n, parse_integer(name, v, least, most));
    *target = static_cast<int32_t>(n);
    return Status();
  });
}

void Flags::number(const std::string& names, float* target, const std::string& help, double least,
                   double most) {
  impl_->add_one(names, "X", help, [=, name = long_name(names)](const std::string& v) {
    ASSIGN_OR_RETURN(const double x, parse_number(name, v, least, most));
    *target = static_cast<float>(x);
    return Status();
  });
}

void Flags::unsigned64(const std::string& names, uint64_t* target, bool* given, const std::string& help) {
  impl_->add_one(names, "N", help, [=, name = long_name(names)](const std::string& v) {
    uint64_t n = 0;
    const auto [end, error] = std::from_chars(v.data(), v.data() + v.size(), n);
    if (error != std::errc() || end != v.data() + v.size())
      return invalid_argument(
          fmt::format("{} {}: must be a whole number from 0 to 2^64 - 1", name, shown_value(v)));
    *target = n;
    *given = true;
    return Status();
  });
}

void Flags::bytes(const std::string& names, uint64_t* target, const std::string& help) {
  impl_->add_one(names, "SIZE", help, [=, name = long_name(names)](const std::string& v) {
    auto size = parse_size(v);
    if (!size.ok()) return size.status().with_context(name);
    if (*size == 0)
      return invalid_argument(name + ": must be more than 0 bytes; leave it out for the default");
    *target = *size;
    return Status();
  });
}

void Flags::bytes_or(const std::string& names, uint64_t* target, const std::string& word,
                     const std::string& help) {
  impl_->add_one(names, word + "|SIZE", help, [=, name = long_name(names)](const std::string& v) {
    auto size = v == word ? Result<uint64_t>(0) : parse_size(v);
    if (!size.ok()) return size.status().with_context(fmt::format("{} ({}, or a size)", name, word));
    if (*size == 0 && v != word)
      return invalid_argument(fmt::format("{}: must be more than 0 bytes; {} says none", name, word));
    *target = *size;
    return Status();
  });
}

void Flags::parsed(const std::string& names, const std::string& value, const std::string& help,
                   std::function<Status(const std::string&)> take) {
  impl_->add_one(names, value, help, std::move(take));
}

void Flags::on(const std::string& names, bool* target, const std::string& help) {
  Option& o = impl_->add(names, "", help);
  o.is_switch = true;
  o.store = [target](const std::vector<std::string>&) {
    *target = true;
    return Status();
  };
  impl_->app.add_flag(names, o.switched);
}

void Flags::rest(const std::string& value, std::vector<std::string>* target, const std::string& help) {
  impl_->rest = target, impl_->rest_value = value, impl_->rest_help = help;
}

void Flags::example(std::string command, std::string what) {
  impl_->examples.emplace_back(std::move(command), std::move(what));
}

void Flags::note(std::string paragraph) {
  impl_->notes.push_back(std::move(paragraph));
}

namespace {

// What flags of other engines are called here; "" if not known.
std::string own_name_of(std::string_view foreign) {
  struct Name {
    std::string_view foreign, own;
  };
  constexpr Name kNames[] = {
      {"-t", "--threads"},
      {"-s", "--seed"},
      {"-b", "--prefill-chunk"},
      {"--batch-size", "--prefill-chunk"},
      {"-c", "--ctx"},
      {"--ctx-size", "--ctx"},
      {"--num-ctx", "--ctx"},
      {"--max-model-len", "--ctx"},
      {"--parallel", "--max-batch"},
      {"--max-num-seqs", "--max-batch"},
      {"--n-predict", "--max-tokens"},
      {"--num-predict", "--max-tokens"},
      {"-ub", "--prefill-chunk"},
      {"--ubatch-size", "--prefill-chunk"},
      {"-ctk", "--kv"},
      {"--cache-type-k", "--kv"},
      {"--kv-cache-dtype", "--kv"},
      {"--rope-freq-base", "--rope-base"},
      {"-a", "--served-model-name"},
      {"--alias", "--served-model-name"},
      {"--chat-template-file", "--chat-template"},
  };
  for (const Name& name : kNames)
    if (name.foreign == foreign) return std::string(name.own);
  return "";
}

}  // namespace

Result<bool> Flags::parse(std::span<const std::string> args) {
  // The library takes arguments last first.
  std::vector<std::string> reversed(args.rbegin(), args.rend());
  const std::string see_help = fmt::format("see: invar {} --help", impl_->verb);
  RETURN_IF_ERROR(impl_->check_equals_signs(args));
  try {
    impl_->app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    return false;
  } catch (const CLI::ParseError& e) {
    std::string what = e.what();
    for (const Option& o : impl_->options) {
      const std::string name = long_name(o.names);
      if (what.starts_with(name + ":") || (o.is_switch && what.find(name + " = ") != std::string::npos))
        return Impl::needs(o, name);
    }
    return invalid_argument(fmt::format("{}; {}", printable_within(what, kShownBytes), see_help));
  }

  bool flags_ended = false;
  for (const std::string& extra : impl_->app.remaining()) {
    if (!flags_ended && extra == "--") {
      flags_ended = true;
      continue;
    }
    if (!flags_ended && extra.size() > 1 && extra[0] == '-') {
      const std::string name = extra.substr(0, extra.find('='));
      const std::vector<std::string> known = impl_->all_names();
      const std::string own = own_name_of(name);
      if (std::find(known.begin(), known.end(), own) != known.end())
        return invalid_argument(fmt::format("unknown flag {}; it is called {} here", name, own));
      const std::string near = nearest_text(name, known);
      return invalid_argument(fmt::format("unknown flag {}; {}", printable_within(name, kShownBytes),
                                          near.empty() ? see_help : fmt::format("did you mean {}?", near)));
    }
    if (impl_->rest == nullptr)
      return invalid_argument(fmt::format("unexpected argument {}; {}", shown_value(extra), see_help));
    impl_->rest->push_back(extra);
  }
  for (const Option& o : impl_->options) {
    if (o.is_given()) RETURN_IF_ERROR(o.store(o.given));
  }
  return true;
}

bool Flags::given(const std::string& name) const {
  return std::any_of(impl_->options.begin(), impl_->options.end(),
                     [&](const Option& o) { return o.is_given() && long_name(o.names) == name; });
}

std::string Flags::first_given(const std::vector<std::string>& sections) const {
  for (const Option& o : impl_->options) {
    if (o.is_given() && std::find(sections.begin(), sections.end(), o.section) != sections.end())
      return long_name(o.names);
  }
  return "";
}

std::string Flags::help() const {
  std::string out = fmt::format("invar {}: {}\n\nUsage: invar {} [flags]{}\n", impl_->verb, impl_->summary,
                                impl_->verb, impl_->rest ? " [" + impl_->rest_value + "]" : "");
  if (impl_->rest) out += fmt::format("  {:<26} {}\n", impl_->rest_value, impl_->rest_help);
  if (!impl_->examples.empty()) out += "\nExamples:\n";
  for (const auto& [command, what] : impl_->examples)
    out += fmt::format("  {}\n      {}\n", command, what);
  std::string section = "?";
  for (const Option& o : impl_->options) {
    if (o.section != section) out += fmt::format("\n{}:\n", o.section.empty() ? "Flags" : o.section);
    section = o.section;
    std::string names = o.names;
    if (const size_t comma = names.find(','); comma != std::string::npos) names.insert(comma + 1, " ");
    const std::string left = o.value.empty() ? names : names + " " + o.value;
    out += left.size() <= 26 ? fmt::format("  {:<26} {}\n", left, o.help)
                             : fmt::format("  {}\n  {:<26} {}\n", left, "", o.help);
  }
  for (const std::string& paragraph : impl_->notes)
    out += "\n" + paragraph + "\n";
  return out;
}

std::string shown_value(std::string_view text) {
  return text.empty() ? "''" : printable_within(text, kShownBytes);
}

Result<int64_t> parse_integer(const std::string& what, const std::string& text, int64_t least, int64_t most) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < least || n > most)
    return invalid_argument(
        fmt::format("{} {}: must be a whole number from {} to {}", what, shown_value(text), least, most));
  return n;
}

Result<double> parse_number(const std::string& what, const std::string& text, double least, double most) {
  double x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (error != std::errc() || end != text.data() + text.size() || !(x >= least && x <= most))
    return invalid_argument(fmt::format("{} {}: must be a number from {} to {}", what, shown_value(text),
                                        display_number(least), display_number(most)));
  return x;
}

}  // namespace invar
