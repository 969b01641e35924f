#include "server/request_parser.h"

#include <fmt/format.h>

#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>

namespace invar::server {
namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;
using boost::beast::string_view;

constexpr size_t kChunkExtensionBytes = 256;
constexpr char kTlsHandshake = 0x16;  // the first byte of a client's hello

std::string_view view(string_view text) {
  return {text.data(), text.size()};
}

// Lines end in CR LF and nowhere else; no line continues another one. `head` ends with an empty line.
const char* line_fault(std::string_view head) {
  for (size_t i = 0; i < head.size(); i++) {
    if (head[i] == '\r') {
      if (i + 1 >= head.size() || head[i + 1] != '\n') return "a carriage return without a line feed";
    } else if (head[i] == '\n') {
      if (i == 0 || head[i - 1] != '\r') return "a line feed without a carriage return";
      if (i + 1 < head.size() && (head[i + 1] == ' ' || head[i + 1] == '\t')) return "a folded line";
    }
  }
  return nullptr;
}

// Whether Beast waits in vain: for it a quoted value in a chunk's extensions may go on behind the line, which
// it refuses only once it has seen the quote that ends it. `unread` begins with a chunk's head.
bool chunk_line_broken(std::string_view unread) {
  if (unread.starts_with("\r\n")) unread.remove_prefix(2);  // behind the chunk before
  const size_t line = unread.find("\r\n");
  if (line == std::string_view::npos) return false;
  const bool last = unread[0] == '0' && unread.find_first_not_of('0') == unread.find_first_of("; \t\r");
  return !last || unread.find("\r\n\r\n", line) != std::string_view::npos;
}

class Parser : public http::basic_parser<true> {
 public:
  explicit Parser(const Limits& limits) : limits_(limits) {
    header_limit(uint32_t(limits.head_bytes));
    body_limit(limits.body_bytes);
    eager(false);
  }

  void fail(int status, std::string message) {
    if (error.status == 0) error = {status, std::move(message)};
  }

  // Beast's word for what is wrong, as an answer.
  void fail(const error_code& ec) {
    if (ec == http::error::header_limit) {
      fail(431, fmt::format("the head of a request may have {} bytes", limits_.head_bytes));
    } else if (ec == http::error::body_limit) {
      fail(413, fmt::format("the body is larger than {} bytes", limits_.body_bytes));
    } else if (ec == http::error::bad_version) {
      fail(400, "HTTP/1.1 and HTTP/1.0 are understood");
    } else {
      fail(400, "malformed request: " + ec.message());
    }
  }

  RequestHead head;
  std::string body;
  bool discard = false;
  ParseError error;
  const char* trailer = nullptr;  // where it begins, in the bytes of the call that read it

 private:
  void on_request_impl(http::verb, string_view method, string_view target, int version,
                       error_code&) override {
    head.method = view(method);
    head.target = view(target);
    head.minor_version = version % 10;
  }
  void on_response_impl(int, string_view, int, error_code&) override {}

  void on_field_impl(http::field field, string_view name, string_view value, error_code& ec) override {
    if (++fields_ > limits_.head_fields) {
      fail(431, fmt::format("a request may have {} header fields", limits_.head_fields));
      ec = http::error::header_limit;
      return;
    }
    if (head_done_) return;  // a trailer means nothing here
    const bool repeated = head.find(to_lower(view(name))) != nullptr;
    const bool framing = field == http::field::content_length || field == http::field::transfer_encoding;
    if (repeated && (framing || field == http::field::host)) {
      fail(400, fmt::format("{} is there twice", view(name)));
      ec = http::error::bad_field;
      return;
    }
    if (field == http::field::content_length && view(value).find(',') != std::string_view::npos) {
      ec = http::error::bad_content_length;
      return;
    }
    if (field == http::field::transfer_encoding &&
        (head.minor_version == 0 || !equal_ignoring_case(view(value), "chunked"))) {
      fail(400, "the only Transfer-Encoding understood is chunked, with HTTP/1.1");
      ec = http::error::bad_transfer_encoding;
      return;
    }
    head.fields.emplace_back(to_lower(view(name)), std::string(view(value)));
  }

  void on_header_impl(error_code& ec) override {
    if (head.minor_version >= 1 && head.find("host") == nullptr) {
      fail(400, "HTTP/1.1 requires a Host field");
      ec = http::error::bad_field;
      return;
    }
    head_done_ = true;
    fields_ = 0;
    head.chunked = chunked();
    if (const auto length = content_length()) head.content_length = *length;
    head.keep_alive = head.minor_version >= 1 && keep_alive();
  }

  void on_body_init_impl(const boost::optional<uint64_t>&, error_code&) override {}
  size_t on_body_impl(string_view bytes, error_code&) override { return take(bytes); }
  void on_chunk_header_impl(uint64_t size, string_view extensions, error_code& ec) override {
    if (size == 0) trailer = extensions.data() + extensions.size() + 2;  // behind the line's end
    for (const char c : extensions) {
      if (uint8_t(c) < 0x20 && c != '\t') ec = http::error::bad_chunk_extension;
    }
    if (extensions.size() > kChunkExtensionBytes) ec = http::error::bad_chunk_extension;
  }
  size_t on_chunk_body_impl(uint64_t, string_view bytes, error_code&) override { return take(bytes); }
  void on_finish_impl(error_code&) override {}

  size_t take(string_view bytes) {
    if (!discard) body.append(bytes.data(), bytes.size());
    return bytes.size();
  }

  const Limits& limits_;
  size_t fields_ = 0;
  bool head_done_ = false;
};

}  // namespace

struct RequestParser::Impl {
  explicit Impl(const Limits& l) : limits(l), parser(l) {}

  size_t feed_head(std::string_view bytes) {
    check_method(bytes);
    if (parser.error.status != 0) return 0;
    // Beast sees a head only when it is whole, and only after its line ends were checked.
    const size_t from = scanned > 3 ? scanned - 3 : 0;
    const size_t end = bytes.find("\r\n\r\n", from);
    scanned = bytes.size();
    const size_t length = end == std::string_view::npos ? bytes.size() : end + 4;
    if (length > limits.head_bytes) {
      parser.fail(http::error::header_limit);
    } else if (end == std::string_view::npos) {
      // A client that ends its lines with LF alone must not wait for a deadline.
      for (; checked < bytes.size(); checked++) {
        if (bytes[checked] == '\n' && (checked == 0 || bytes[checked - 1] != '\r')) {
          parser.fail(400, "malformed request: a line feed without a carriage return");
        }
      }
      return 0;
    } else if (const char* fault = line_fault(bytes.substr(0, length))) {
      parser.fail(400, fmt::format("malformed request: {}", fault));
    } else {
      error_code ec;
      size_t used = 0;
      while (!ec && !parser.is_header_done()) {
        used += parser.put(boost::asio::buffer(bytes.data() + used, length - used), ec);
      }
      if (ec) parser.fail(ec);
      parser.eager(true);
    }
    return parser.error.status == 0 ? length : 0;
  }

  // What is no HTTP (TLS, another protocol, garbage) may never send an end of line to be judged by.
  void check_method(std::string_view bytes) {
    while (!method_ended && method_bytes < bytes.size()) {
      const char c = bytes[method_bytes];
      if (is_token_character(c)) {
        method_bytes++;
      } else if (c == ' ' && method_bytes > 0) {
        method_ended = true;
      } else if (c == kTlsHandshake && method_bytes == 0) {
        return parser.fail(400, "this port speaks plain HTTP, and this is TLS: use http://, not https://");
      } else {
        return parser.fail(400, "malformed request: it does not begin with a method and a space");
      }
    }
  }

  size_t feed_body(std::string_view bytes) {
    error_code ec;
    const size_t used = parser.put(boost::asio::buffer(bytes.data(), bytes.size()), ec);
    if (ec == http::error::need_more) {
      // What is left is part of a chunk's head or of the trailer.
      if (bytes.size() - used > limits.head_bytes) parser.fail(http::error::header_limit);
      if (chunk_line_broken(bytes.substr(used))) parser.fail(http::error::bad_chunk_extension);
    } else if (ec) {
      parser.fail(ec);
    } else if (parser.is_done() && parser.trailer != nullptr &&
               bytes.data() + used - parser.trailer > ptrdiff_t(limits.head_bytes)) {
      parser.fail(431, fmt::format("the trailer of a request may have {} bytes", limits.head_bytes));
    }
    return used;
  }

  const Limits& limits;
  Parser parser;
  size_t scanned = 0;
  size_t checked = 0;
  size_t method_bytes = 0;
  bool method_ended = false;
};

RequestParser::RequestParser(const Limits& limits) : impl_(std::make_unique<Impl>(limits)) {}
RequestParser::~RequestParser() = default;

size_t RequestParser::feed(std::string_view bytes) {
  switch (state()) {
    case State::kHead:
      return impl_->feed_head(bytes);
    case State::kBody:
      return bytes.empty() ? 0 : impl_->feed_body(bytes);
    case State::kDone:
    case State::kFailed:
      return 0;
  }
  return 0;
}

RequestParser::State RequestParser::state() const {
  const Parser& parser = impl_->parser;
  if (parser.error.status != 0) return State::kFailed;
  if (!parser.is_header_done()) return State::kHead;
  return parser.is_done() ? State::kDone : State::kBody;
}

const ParseError& RequestParser::error() const {
  return impl_->parser.error;
}
const RequestHead& RequestParser::head() const {
  return impl_->parser.head;
}
std::string& RequestParser::body() {
  return impl_->parser.body;
}
void RequestParser::discard_body() {
  impl_->parser.discard = true;
}

}  // namespace invar::server
