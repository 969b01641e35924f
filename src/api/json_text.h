#pragma once
// JSON text in and out. In: a bounded reader for what clients send. Out: values appended to a string that the
// caller frames itself, so that a chunk of a stream costs no document. Free functions, any thread.

#include <boost/json/value.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace invar::api {

struct JsonLimits {
  int depth = 64;
  size_t values = 2'000'000;  // of the whole document; a value costs at least 16 bytes of memory
};

// Strict JSON, numbers read to the nearest double. Of equal keys in an object the last one counts. Errors
// (kInvalidArgument) say what is wrong at which byte: invalid UTF-8, unpaired surrogates, numbers beyond
// double, depth, text after the document.
Result<boost::json::value> parse_json(std::string_view text, const JsonLimits& limits = {});

// A value as compact JSON: keys in their order, doubles as the shortest text that reads back equal.
void append_json(std::string& out, const boost::json::value& value);
// A quoted string. Bytes that are not UTF-8 become U+FFFD.
void append_json_string(std::string& out, std::string_view text);
// The shortest number that reads back as the same float; what JSON has no number for becomes +-9999, as
// clients expect of the logarithm of zero.
void append_json_float(std::string& out, float value);
void append_json_int(std::string& out, int64_t value);
// [1,2,3], the bytes of a text.
void append_json_bytes(std::string& out, std::string_view bytes);

}  // namespace invar::api
