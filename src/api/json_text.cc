#include "api/json_text.h"

#include <fmt/format.h>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "base/quote.h"
#include "base/utf8.h"

namespace invar::api {
namespace {

namespace json = boost::json;

// Receives the parser's events. Returning false stops the parser.
class Builder {
 public:
  static constexpr size_t max_object_size = std::numeric_limits<int32_t>::max();
  static constexpr size_t max_array_size = std::numeric_limits<int32_t>::max();
  static constexpr size_t max_key_size = std::numeric_limits<int32_t>::max();
  static constexpr size_t max_string_size = std::numeric_limits<int32_t>::max();

  void set_limit(size_t values) { left_ = values; }
  json::value take() { return stack_.release(); }
  const std::string& problem() const { return problem_; }

  bool on_document_begin(json::error_code&) {
    stack_.reset();
    return true;
  }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code& ec) { return count(ec); }
  bool on_array_begin(json::error_code& ec) { return count(ec); }
  bool on_object_end(size_t n, json::error_code&) {
    stack_.push_object(n);
    return true;
  }
  bool on_array_end(size_t n, json::error_code&) {
    stack_.push_array(n);
    return true;
  }
  bool on_key_part(json::string_view s, size_t, json::error_code&) {
    stack_.push_chars(s);
    return true;
  }
  bool on_key(json::string_view s, size_t, json::error_code&) {
    stack_.push_key(s);
    return true;
  }
  bool on_string_part(json::string_view s, size_t, json::error_code&) {
    stack_.push_chars(s);
    return true;
  }
  bool on_string(json::string_view s, size_t, json::error_code& ec) {
    stack_.push_string(s);
    return count(ec);
  }
  bool on_number_part(json::string_view s, json::error_code&) {
    number_.append(s.data(), s.size());
    return true;
  }
  bool on_int64(int64_t value, json::string_view, json::error_code& ec) {
    number_.clear();
    stack_.push_int64(value);
    return count(ec);
  }
  bool on_uint64(uint64_t value, json::string_view, json::error_code& ec) {
    number_.clear();
    stack_.push_uint64(value);
    return count(ec);
  }
  bool on_double(double approximate, json::string_view s, json::error_code& ec) {
    number_.append(s.data(), s.size());
    double value = 0;  // the parser's own value may be off by its last bit
    const char* end = number_.data() + number_.size();
    const auto read = std::from_chars(number_.data(), end, value);
    if (read.ec == std::errc::result_out_of_range && std::fabs(approximate) < 1) {
      value = 0;
    } else if (read.ec != std::errc() || read.ptr != end) {
      return fail("the number " + quote(number_) + " is too large", ec);
    }
    number_.clear();
    stack_.push_double(value);
    return count(ec);
  }
  bool on_bool(bool value, json::error_code& ec) {
    stack_.push_bool(value);
    return count(ec);
  }
  bool on_null(json::error_code& ec) {
    stack_.push_null();
    return count(ec);
  }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 private:
  bool fail(std::string what, json::error_code& ec) {
    problem_ = std::move(what);
    ec = json::error::syntax;
    return false;
  }
  bool count(json::error_code& ec) { return left_-- > 0 || fail("it has too many values", ec); }

  json::value_stack stack_;
  std::string number_;  // of a number that comes in parts
  std::string problem_;
  size_t left_ = 0;
};

// `used`: where the parser stopped.
std::string words_of(json::error_code ec, std::string_view text, size_t used) {
  // A leading surrogate that no escape follows is a plain syntax error to the parser.
  constexpr std::string_view kLeading = "89abAB";
  const bool half = used >= 6 && text[used - 6] == '\\' && text[used - 5] == 'u' &&
                    (text[used - 4] | 0x20) == 'd' && kLeading.find(text[used - 3]) != kLeading.npos;
  if (half || ec == json::error::illegal_leading_surrogate || ec == json::error::illegal_trailing_surrogate ||
      ec == json::error::expected_utf16_escape)
    return "a \\u escape is half of a surrogate pair";
  if (ec == json::error::too_deep) return "it is nested too deeply";
  if (ec == json::error::incomplete) return "it ends too early";
  if (ec == json::error::exponent_overflow) return "a number is too large";
  return ec.message();
}

}  // namespace

Result<json::value> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.empty()) return invalid_argument("the body is empty; it must be a JSON object");
  json::parse_options options;
  options.max_depth = size_t(limits.depth);
  try {
    json::basic_parser<Builder> parser(options);
    parser.handler().set_limit(limits.values);
    json::error_code ec;
    const size_t used = parser.write_some(false, text.data(), text.size(), ec);
    if (ec) {
      const std::string& problem = parser.handler().problem();
      const bool broken = used < text.size() && uint8_t(text[used]) >= 0x80 && problem.empty() &&
                          utf8_length(text.substr(used)) == 0;
      return invalid_argument(fmt::format("the body is not valid JSON, byte {}: {}", used,
                                          !problem.empty() ? problem
                                          : broken         ? "it is not UTF-8"
                                                           : words_of(ec, text, used)));
    }
    const size_t rest = text.find_first_not_of(" \t\r\n", used);
    if (rest != std::string_view::npos)
      return invalid_argument(
          fmt::format("the body is not valid JSON, byte {}: text after the document", rest));
    return parser.handler().take();
  } catch (const std::bad_alloc&) {
    return resource_exhausted("out of memory while reading the body");
  } catch (const std::exception& e) {
    return invalid_argument(fmt::format("the body is not valid JSON: {}", e.what()));
  }
}

void append_json(std::string& out, const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      out += "null";
      break;
    case json::kind::bool_:
      out += value.get_bool() ? "true" : "false";
      break;
    case json::kind::int64:
      append_json_int(out, value.get_int64());
      break;
    case json::kind::uint64:
      fmt::format_to(std::back_inserter(out), "{}", value.get_uint64());
      break;
    case json::kind::double_: {
      const size_t at = out.size();
      fmt::format_to(std::back_inserter(out), "{}", value.get_double());
      // What was written as a fraction stays one: templates tell 1.0 from 1.
      if (out.find_first_of(".e", at) == std::string::npos) out += ".0";
      break;
    }
    case json::kind::string:
      append_json_string(out, {value.get_string().data(), value.get_string().size()});
      break;
    case json::kind::array: {
      char before = '[';
      for (const json::value& element : value.get_array()) {
        out += before;
        append_json(out, element);
        before = ',';
      }
      out += before == '[' ? "[]" : "]";
      break;
    }
    case json::kind::object: {
      char before = '{';
      for (const auto& [key, member] : value.get_object()) {
        out += before;
        append_json_string(out, {key.data(), key.size()});
        out += ':';
        append_json(out, member);
        before = ',';
      }
      out += before == '{' ? "{}" : "}";
      break;
    }
  }
}

void append_json_string(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  size_t start = 0;
  size_t i = 0;
  const auto replace = [&](std::string_view with) {
    out.append(text, start, i - start);
    out += with;
    start = ++i;
  };
  while (i < text.size()) {
    const auto c = uint8_t(text[i]);
    if (c >= 0x80) {
      if (const size_t length = utf8_length(text.substr(i, 4)); length > 0) {
        i += length;
      } else {
        replace("\xEF\xBF\xBD");
      }
    } else if (c == '"') {
      replace("\\\"");
    } else if (c == '\\') {
      replace("\\\\");
    } else if (c == '\n') {
      replace("\\n");
    } else if (c < 0x20) {
      const char escape[] = {'\\', 'u', '0', '0', kHex[c >> 4], kHex[c & 15]};
      replace({escape, sizeof escape});
    } else {
      ++i;
    }
  }
  out.append(text, start, i - start);
  out += '"';
}

void append_json_float(std::string& out, float value) {
  if (!std::isfinite(value)) {
    out += value > 0 ? "9999.0" : "-9999.0";
    return;
  }
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value);
  out.append(digits, end.ptr);
}

void append_json_int(std::string& out, int64_t value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, value);
  out.append(digits, end.ptr);
}

void append_json_bytes(std::string& out, std::string_view bytes) {
  char before = '[';
  for (const char c : bytes) {
    out += before;
    append_json_int(out, uint8_t(c));
    before = ',';
  }
  out += before == '[' ? "[]" : "]";
}

}  // namespace invar::api
