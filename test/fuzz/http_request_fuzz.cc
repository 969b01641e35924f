// libFuzzer target: any bytes on a connection are a request, part of one or an error, the same however they
// arrive in pieces, and never beyond the limits. The first byte says how they arrive. layers: server

#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/request_parser.h"

namespace {

using namespace invar::server;
using State = RequestParser::State;

Limits small_limits() {
  Limits limits;
  limits.head_bytes = 512;
  limits.head_fields = 8;
  limits.body_bytes = 256;
  return limits;
}
const Limits kLimits = small_limits();

struct Seen {
  State state;
  RequestHead head;
  std::string body;
  size_t used = 0;
};

// The bytes come `step` at a time, as a connection would show them to the parser.
Seen parse(std::string_view bytes, size_t step) {
  RequestParser parser(kLimits);
  size_t used = 0, there = 0;
  while (parser.state() == State::kHead || parser.state() == State::kBody) {
    const size_t n = parser.feed(bytes.substr(used, there - used));
    CHECK(n <= there - used);
    used += n;
    if (n > 0) continue;
    if (there == bytes.size()) break;
    there = std::min(bytes.size(), there + step);
  }
  CHECK(parser.body().size() <= kLimits.body_bytes);
  CHECK((parser.state() == State::kFailed) == (parser.error().status != 0));
  return {parser.state(), parser.head(), parser.body(), used};
}

void check_head(const RequestHead& head) {
  CHECK(is_token(head.method));
  CHECK(!head.target.empty() &&
        head.target.find_first_of(std::string_view("\0 \r\n", 4)) == head.target.npos);
  CHECK(head.fields.size() <= kLimits.head_fields);
  CHECK(!(head.chunked && head.content_length.has_value()));
  for (const auto& [name, value] : head.fields) {
    CHECK(is_token(name) && to_lower(name) == name);
    CHECK(trim(value) == value);
    CHECK(value.find_first_of(std::string_view("\0\r\n", 3)) == value.npos);
  }
  const Target target = parse_target(head.target);
  CHECK(target.path.size() + target.query.size() <= head.target.size() + 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Seen whole = parse(bytes, bytes.size());
  const Seen pieces = parse(bytes, 1 + data[0] % 32);
  CHECK(whole.state == pieces.state);
  if (whole.state == State::kFailed || whole.state == State::kHead) return 0;
  check_head(whole.head);
  CHECK(whole.head.method == pieces.head.method && whole.head.target == pieces.head.target);
  CHECK(whole.head.fields == pieces.head.fields && whole.body == pieces.body);
  if (whole.state != State::kDone) return 0;
  CHECK(whole.used == pieces.used);
  if (!whole.head.chunked) CHECK(whole.body.size() == whole.head.content_length.value_or(0));
  return 0;
}
