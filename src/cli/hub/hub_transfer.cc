#include "cli/hub/hub_transfer.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/quote.h"
#include "cli/flags.h"
#include "server/request_head.h"

namespace invar {
namespace {

constexpr long kConnectTimeout_s = 20;
constexpr long kSilence_s = 30;  // a connection that brings nothing for so long is broken
constexpr int kPoll_ms = 100;
constexpr int kMaxRedirects = 6;
constexpr double kFirstPause_s = 0.5, kLongestPause_s = 30, kLongestRetryAfter_s = 300;
constexpr int64_t kProgressBytes = 64 << 10;  // after so many a request counts as new
constexpr size_t kErrorBytes = 2000, kShownBytes = 300;
constexpr size_t kMaxHeadBytes = size_t{256} << 10;

const Status kInterrupted(Code::kCancelled, "interrupted");

struct UrlDeleter {
  void operator()(CURLU* u) const { curl_url_cleanup(u); }
};

// "https://host:443", lower case; "" when it is no http(s) URL.
std::string origin_of(const std::string& url) {
  const std::unique_ptr<CURLU, UrlDeleter> u(curl_url());
  if (u == nullptr || curl_url_set(u.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) return "";
  const auto part = [&](CURLUPart what, unsigned flags) {
    char* text = nullptr;
    if (curl_url_get(u.get(), what, &text, flags) != CURLUE_OK) return std::string();
    std::string out(text);
    curl_free(text);
    for (char& c : out)
      c = char(std::tolower(static_cast<unsigned char>(c)));
    return out;
  };
  const std::string scheme = part(CURLUPART_SCHEME, 0), host = part(CURLUPART_HOST, 0);
  if ((scheme != "http" && scheme != "https") || host.empty()) return "";
  return scheme + "://" + host + ":" + part(CURLUPART_PORT, CURLU_DEFAULT_PORT);
}

std::string trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t'))
    s.remove_prefix(1);
  while (!s.empty() && std::strchr(" \t\r\n", s.back()) != nullptr)
    s.remove_suffix(1);
  return std::string(s);
}

std::optional<int64_t> number_of(std::string_view s) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), n);
  if (error != std::errc() || end != s.data() + s.size() || n < 0) return std::nullopt;
  return n;
}

// "bytes 5-9/100".
struct ContentRange {
  int64_t first, last, total;
};
std::optional<ContentRange> content_range(std::string_view s) {
  if (!s.starts_with("bytes ")) return std::nullopt;
  s.remove_prefix(6);
  const size_t dash = s.find('-'), slash = s.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash) return std::nullopt;
  const auto first = number_of(s.substr(0, dash)), last = number_of(s.substr(dash + 1, slash - dash - 1)),
             total = number_of(s.substr(slash + 1));
  if (!first || !last || !total) return std::nullopt;
  return ContentRange{*first, *last, *total};
}

enum class Verdict { kDone, kAgain, kRedirect, kFailed };

// One part on its way: its request at this moment, and what went before.
struct Request {
  HubPart part;
  std::string url;  // of this hop
  int64_t at = 0;   // next byte
  int redirects = 0, failures = 0;
  int64_t since_failure = 0;  // bytes
  int64_t not_before_ns = 0;
  bool active = false;

  CURL* easy = nullptr;
  curl_slist* lines = nullptr;
  std::array<char, CURL_ERROR_SIZE> error_text{};

  // Of the answer that is coming.
  bool judged = false;
  long status = 0;
  Status fatal;      // ends everything
  std::string flaw;  // why it is tried again
  std::string error_body, retry_after, range, error_code, error_message, location;
  size_t head_bytes = 0;

  ~Request() { close(); }
  void close() {
    if (easy != nullptr) curl_easy_cleanup(easy);
    if (lines != nullptr) curl_slist_free_all(lines);
    easy = nullptr, lines = nullptr;
  }
  void reset_answer() {
    judged = false, status = 0, head_bytes = 0;
    flaw.clear(), error_body.clear(), retry_after.clear(), range.clear(), error_code.clear();
    error_message.clear(), location.clear();
  }

  bool is_good() const { return status == 200 || status == 206; }

  // At the first byte of a body: whether it is what was asked for.
  bool judge() {
    judged = true;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    if (!is_good() || part.end < 0) return true;
    if (status == 206 && part.ranged) {
      const auto r = content_range(range);
      if (!r || r->first != at || r->last >= part.end || r->last < r->first) {
        flaw = fmt::format("the server sent another range than bytes {}-{}", at, part.end - 1);
        return false;
      }
      if (r->total != part.total) {
        fatal = corrupt(fmt::format("{}: the server says it has {} bytes, the list of files {}", part.what,
                                    r->total, part.total));
        return false;
      }
      return true;
    }
    if (status == 206) {
      flaw = "the server sent a range that nobody asked for";
      return false;
    }
    if (at == 0 && part.end == part.total) return true;
    fatal = unsupported(fmt::format("{}: the server does not send ranges", part.what));
    return false;
  }

  static size_t on_body(char* data, size_t, size_t size, void* self) {
    Request& r = *static_cast<Request*>(self);
    if (!r.judged && !r.judge()) return 0;
    const std::string_view bytes(data, size);
    if (!r.is_good()) {
      if (r.error_body.size() < kErrorBytes) r.error_body += bytes.substr(0, kErrorBytes);
      return size;
    }
    const int64_t room = r.part.end >= 0 ? r.part.end - r.at : r.part.most - r.at;
    if (int64_t(size) > room) {
      r.fatal = corrupt(fmt::format("{}: the server sent more than {} bytes; check HF_ENDPOINT", r.part.what,
                                    r.part.end >= 0 ? r.part.end - r.part.begin : r.part.most));
      return 0;
    }
    if (Status s = r.part.write(r.at, bytes); !s.ok()) {
      r.fatal = std::move(s);
      return 0;
    }
    r.at += int64_t(size);
    r.since_failure += int64_t(size);
    return size;
  }

  static size_t on_head(char* data, size_t, size_t size, void* self) {
    Request& r = *static_cast<Request*>(self);
    if ((r.head_bytes += size) > kMaxHeadBytes) {
      r.flaw = "the server's head is too long";
      return 0;
    }
    const std::string_view line(data, size);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return size;
    const std::string_view name = line.substr(0, colon);
    const auto take = [&](std::string_view wanted, std::string& field) {
      if (server::equal_ignoring_case(name, wanted)) field = trimmed(line.substr(colon + 1));
    };
    take("retry-after", r.retry_after);
    take("content-range", r.range);
    take("x-error-code", r.error_code);
    take("x-error-message", r.error_message);
    return size;
  }
};

}  // namespace

struct HubTransfer::Impl {
  HubOptions options;
  std::string origin;
  CURLM* multi = nullptr;

  ~Impl() {
    if (multi != nullptr) curl_multi_cleanup(multi);
  }

  bool stopped() const { return options.stop != nullptr && options.stop->load(std::memory_order_acquire); }

  Status start(Request& r) {
    r.reset_answer();
    r.close();
    r.easy = curl_easy_init();
    if (r.easy == nullptr) return resource_exhausted("out of memory");
    const auto line = [&](const std::string& text) {
      curl_slist* longer = curl_slist_append(r.lines, text.c_str());
      if (longer == nullptr) return resource_exhausted("out of memory");
      r.lines = longer;
      return Status();
    };
    // Whoever else a hub sends us to has no business with the token.
    if (!options.token.empty() && origin_of(r.url) == origin)
      RETURN_IF_ERROR(line("Authorization: Bearer " + options.token));
    if (r.part.end >= 0 && r.part.ranged)
      RETURN_IF_ERROR(line(fmt::format("Range: bytes={}-{}", r.at, r.part.end - 1)));
    RETURN_IF_ERROR(line("Accept-Encoding: identity"));
    const auto set = [&](CURLoption option, auto value) {
      CHECK(curl_easy_setopt(r.easy, option, value) == CURLE_OK);
    };
    set(CURLOPT_ERRORBUFFER, r.error_text.data());
    set(CURLOPT_NOSIGNAL, 1L);
    if (!options.use_proxies) set(CURLOPT_PROXY, "");
    set(CURLOPT_HTTP_VERSION, long(CURL_HTTP_VERSION_1_1));  // one connection per range
    set(CURLOPT_CONNECTTIMEOUT, kConnectTimeout_s);
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, kSilence_s);
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_USERAGENT, "invar");
    set(CURLOPT_HTTPHEADER, r.lines);
    set(CURLOPT_WRITEFUNCTION, &Request::on_body);
    set(CURLOPT_WRITEDATA, &r);
    set(CURLOPT_HEADERFUNCTION, &Request::on_head);
    set(CURLOPT_HEADERDATA, &r);
    set(CURLOPT_PRIVATE, &r);
    if (curl_easy_setopt(r.easy, CURLOPT_URL, r.url.c_str()) != CURLE_OK)
      return resource_exhausted("out of memory");
    CHECK(curl_multi_add_handle(multi, r.easy) == CURLM_OK);
    r.active = true;
    return {};
  }

  // Says why in `fatal` or `flaw`.
  Verdict judge(Request& r, CURLcode code) const {
    if (!r.fatal.ok()) return Verdict::kFailed;
    if (!r.flaw.empty()) return Verdict::kAgain;
    if (!r.judged && code == CURLE_OK && !r.judge()) return r.fatal.ok() ? Verdict::kAgain : Verdict::kFailed;
    curl_easy_getinfo(r.easy, CURLINFO_RESPONSE_CODE, &r.status);
    if (r.is_good() || r.status == 0) {
      if (code != CURLE_OK) {
        r.flaw = r.error_text[0] != '\0' ? r.error_text.data() : curl_easy_strerror(code);
        return Verdict::kAgain;
      }
      if (r.part.end >= 0 && r.at < r.part.end) {
        r.flaw = fmt::format("the connection ended {} bytes early", r.part.end - r.at);
        return Verdict::kAgain;
      }
      return Verdict::kDone;
    }
    if (r.status >= 300 && r.status < 400 && r.status != 304) {
      const char* to = nullptr;
      curl_easy_getinfo(r.easy, CURLINFO_REDIRECT_URL, &to);
      if (to != nullptr) {
        r.location = to;
        return redirect(r);
      }
      r.fatal = corrupt(fmt::format("{}: status {} without a place to go to", r.part.what, r.status));
      return Verdict::kFailed;
    }
    if (r.status == 429 || r.status == 408 || r.status >= 500) {
      r.flaw = fmt::format("status {}", r.status);
      return Verdict::kAgain;
    }
    r.fatal = refusal(r);
    return Verdict::kFailed;
  }

  Verdict redirect(Request& r) const {
    const std::string to = origin_of(r.location);
    if (to.empty() || ++r.redirects > kMaxRedirects ||
        (origin_of(r.url).starts_with("https:") && !to.starts_with("https:"))) {
      r.fatal =
          corrupt(fmt::format("{}: the server {}", r.part.what,
                              r.redirects > kMaxRedirects ? "redirects in circles"
                              : to.empty()                ? "redirects to what is no http address"
                                           : "redirects from https to http, which could be read by others"));
      return Verdict::kFailed;
    }
    return Verdict::kRedirect;
  }

  Status refusal(const Request& r) const {
    const std::string said =
        r.error_message.empty() ? "" : fmt::format(" ({})", printable_within(r.error_message, kShownBytes));
    const bool has_token = !options.token.empty();
    if (r.status == 401)
      return {
          Code::kNotFound,
          fmt::format("{}: status 401{}; {}", r.part.what, said,
                      has_token ? "the token in HF_TOKEN is not accepted here, or there is no such repository"
                                : "there is no such repository, or it is private or gated: set HF_TOKEN")};
    if (r.status == 403)
      return {Code::kUnavailable,
              fmt::format("{}: status 403{}; access must be granted on the page of the repository first{}",
                          r.part.what, said, has_token ? "" : ", and HF_TOKEN set")};
    if (r.status == 404) {
      const std::string_view lacks = r.error_code == "RevisionNotFound" ? "revision"
                                     : r.error_code == "EntryNotFound"  ? "file"
                                                                        : "repository, revision or file";
      return not_found(fmt::format("{}: there is no such {}{}", r.part.what, lacks, said));
    }
    return {Code::kUnavailable,
            fmt::format("{}: the server refused, status {}{}", r.part.what, r.status, said)};
  }

  // How long to wait before the next attempt.
  static double pause_of(const Request& r) {
    if (r.status == 429 || r.status == 503) {
      if (const auto seconds = number_of(r.retry_after)) return double(*seconds);
      if (!r.retry_after.empty()) {
        const time_t when = curl_getdate(r.retry_after.c_str(), nullptr);
        if (when != -1) return std::max(0.0, double(when - std::time(nullptr)));
      }
    }
    return std::min(kFirstPause_s * double(1 << std::min(r.failures - 1, 10)), kLongestPause_s);
  }

  Status again(Request& r, const std::string& url) {
    // Without ranges a body can only begin again, however much of it came: that is no progress.
    const bool from_start = !r.part.ranged || r.part.end < 0;
    if (!from_start && r.since_failure >= kProgressBytes) r.failures = 0;
    r.since_failure = 0;
    if (++r.failures >= options.attempts)
      return {Code::kUnavailable, fmt::format("{}: {} ({} attempts); run it again{}", r.part.what,
                                              printable_within(r.flaw, kShownBytes), r.failures,
                                              from_start ? "" : " to go on from here")};
    const double pause = pause_of(r);
    if (pause > kLongestRetryAfter_s)
      return {Code::kUnavailable,
              fmt::format("{}: the server asks to wait {:.0f} s; run it again then", r.part.what, pause)};
    // Files show their progress; before them, nothing would tell why it takes so long.
    if (r.part.end < 0)
      fmt::print(stderr, "invar: {}: {}; trying again in {:.1f} s\n", r.part.what,
                 printable_within(r.flaw, kShownBytes), pause);
    if (from_start) r.at = r.part.begin;
    r.url = url, r.redirects = 0;
    r.not_before_ns = now_ns() + int64_t(pause * 1e9);
    if (options.wait) {
      options.wait(pause);
      r.not_before_ns = 0;
    }
    return {};
  }

  std::string url_of(const HubPart& part) const { return options.endpoint + part.path; }

  Status run(std::list<Request>& requests) {
    std::list<Request>::iterator next = requests.begin();
    size_t left = requests.size(), active = 0;
    const auto close_all = [&](Status s) {
      for (Request& r : requests)
        if (r.active) curl_multi_remove_handle(multi, r.easy);
      return s;
    };
    std::vector<Request*> waiting;
    while (left > 0) {
      if (stopped()) return close_all(kInterrupted);
      // Those that wait for their time keep their place among the parallel ones.
      for (; active < size_t(options.parallel) && next != requests.end(); ++next, ++active)
        waiting.push_back(&*next);
      const int64_t now = now_ns();
      for (Request*& r : waiting) {
        if (r->not_before_ns > now) continue;
        if (Status s = start(*r); !s.ok()) return close_all(std::move(s));
        r = nullptr;
      }
      std::erase(waiting, nullptr);
      int running = 0;
      if (curl_multi_perform(multi, &running) != CURLM_OK)
        return close_all(internal_error("the HTTP library failed"));
      int more = 0;
      while (const CURLMsg* message = curl_multi_info_read(multi, &more)) {
        if (message->msg != CURLMSG_DONE) continue;
        const CURLcode code = message->data.result;
        char* private_data = nullptr;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &private_data);
        Request& r = *reinterpret_cast<Request*>(private_data);
        curl_multi_remove_handle(multi, r.easy);
        r.active = false;
        switch (judge(r, code)) {
          case Verdict::kDone:
            --left, --active;
            if (r.part.finish) {
              if (Status s = r.part.finish(); !s.ok()) return close_all(std::move(s));
            }
            r.close();
            break;
          case Verdict::kRedirect:
            r.url = r.location;
            waiting.push_back(&r);
            break;
          case Verdict::kAgain:
            if (Status s = again(r, url_of(r.part)); !s.ok()) return close_all(std::move(s));
            waiting.push_back(&r);
            break;
          case Verdict::kFailed:
            return close_all(r.fatal);
        }
      }
      // Until something comes, a request's time is there, or `stop` may have been set.
      int pause_ms = active < size_t(options.parallel) && next != requests.end() ? 0 : kPoll_ms;
      for (const Request* r : waiting)
        pause_ms = int(std::clamp<int64_t>((r->not_before_ns - now_ns()) / 1'000'000, 0, pause_ms));
      if (left > 0 && curl_multi_poll(multi, nullptr, 0, pause_ms, nullptr) != CURLM_OK)
        return close_all(internal_error("the HTTP library failed"));
    }
    return {};
  }
};

HubTransfer::HubTransfer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HubTransfer::~HubTransfer() = default;

Result<std::unique_ptr<HubTransfer>> HubTransfer::create(HubOptions options) {
  static std::once_flag once;
  static CURLcode initialized = CURLE_FAILED_INIT;
  std::call_once(once, [] { initialized = curl_global_init(CURL_GLOBAL_DEFAULT); });
  ASSIGN_OR_RETURN(options.endpoint, parse_hub_endpoint(options.endpoint));
  if (std::any_of(options.token.begin(), options.token.end(),
                  [](unsigned char c) { return c <= 0x20 || c >= 0x7F; }))
    return invalid_argument("HF_TOKEN: holds characters that no token has; check for blanks and line ends");
  auto impl = std::make_unique<Impl>();
  impl->origin = origin_of(options.endpoint);
  impl->options = std::move(options);
  if (initialized == CURLE_OK) impl->multi = curl_multi_init();
  if (impl->multi == nullptr) return internal_error("the HTTP library cannot be initialized");
  return std::unique_ptr<HubTransfer>(new HubTransfer(std::move(impl)));
}

Status HubTransfer::run(std::vector<HubPart> parts) {
  std::list<Request> requests;  // addresses stay
  for (HubPart& part : parts) {
    CHECK(part.write && (part.end < 0 ? part.most > 0 : part.begin < part.end && part.end <= part.total));
    Request& r = requests.emplace_back();
    r.at = part.begin;
    r.url = impl_->url_of(part);
    r.part = std::move(part);
  }
  return impl_->run(requests);
}

Result<std::string> HubTransfer::get(const std::string& path, const std::string& what, int64_t most) {
  std::string body;
  HubPart part;
  part.path = path, part.what = what, part.most = most;
  part.write = [&body](int64_t offset, std::string_view bytes) {
    body.resize(size_t(offset));  // what came before a break comes again
    body += bytes;
    return Status();
  };
  std::vector<HubPart> parts;
  parts.push_back(std::move(part));
  RETURN_IF_ERROR(run(std::move(parts)));
  return body;
}

Result<std::string> parse_hub_endpoint(const std::string& text) {
  std::string out = text;
  while (out.ends_with('/'))
    out.pop_back();
  if (origin_of(out).empty() || out.find_first_of("?#@ \t\r\n") != std::string::npos)
    return invalid_argument(
        fmt::format("HF_ENDPOINT {}: write http(s)://HOST, as in https://huggingface.co", shown_value(text)));
  return out;
}

}  // namespace invar
