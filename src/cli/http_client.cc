#include "cli/http_client.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

#include "cli/flags.h"
#include "server/request_head.h"

namespace invar {
namespace {

constexpr long kConnectTimeout_s = 10;

// What can stand in one line of a head without ending it.
bool is_line(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; });
}

bool is_target(std::string_view text) {
  return !text.empty() && is_line(text) && text.find(' ') == std::string_view::npos;
}

struct ListDeleter {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using List = std::unique_ptr<curl_slist, ListDeleter>;

bool add_line(List& list, const std::string& line) {
  curl_slist* longer = curl_slist_append(list.get(), line.c_str());
  if (longer == nullptr) return false;
  (void)list.release();
  list.reset(longer);
  return true;
}

// The request in progress.
struct Transfer {
  CURL* easy;
  const ApiTarget::StreamSink& sink;
  const std::atomic<bool>& cancelled;
  ApiReply reply;
  bool too_large = false;

  void read_head() {
    if (reply.status != 0) return;
    long status = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    const char* type = nullptr;
    curl_easy_getinfo(easy, CURLINFO_CONTENT_TYPE, &type);
    reply.status = int(status);
    if (type != nullptr) reply.content_type = type;
    curl_off_t announced = -1;
    curl_easy_getinfo(easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &announced);
    too_large = !reply.is_stream() && announced > curl_off_t(kMaxReplyBytes);
  }

  static size_t on_body(char* data, size_t, size_t size, void* self) {
    Transfer& t = *static_cast<Transfer*>(self);
    if (t.cancelled.load(std::memory_order_acquire)) return 0;
    t.read_head();
    if (t.too_large) return 0;
    const std::string_view bytes(data, size);
    if (t.sink && t.reply.is_stream()) {
      t.sink(bytes);
    } else if (t.reply.body.size() + size > kMaxReplyBytes) {
      t.too_large = true;
      return 0;
    } else {
      t.reply.body += bytes;
    }
    return size;
  }
};

}  // namespace

Result<ServerAddress> parse_server_address(const std::string& text) {
  constexpr std::string_view kUnix = "unix:";
  const auto wrong = [&](std::string_view what) {
    return invalid_argument(
        fmt::format("--server {}: {}; write http://HOST:PORT or unix:/PATH", shown_value(text), what));
  };
  ServerAddress address;
  address.shown = text;
  if (!is_line(text) || text.find(' ') != std::string::npos) return wrong("not an address");
  if (text.starts_with(kUnix)) {
    address.unix_path = text.substr(kUnix.size());
    if (address.unix_path.empty()) return wrong("the path of the socket is missing");
    if (address.unix_path.size() >= sizeof(sockaddr_un::sun_path))
      return wrong(fmt::format("a socket's path has at most {} bytes", sizeof(sockaddr_un::sun_path) - 1));
    address.origin = "http://localhost";
    return address;
  }
  const size_t scheme_end = text.find("://");
  const std::string scheme = scheme_end == std::string::npos ? "http" : text.substr(0, scheme_end);
  if (scheme != "http" && scheme != "https") return wrong("only http, https and unix are understood");
  std::string rest = scheme_end == std::string::npos ? text : text.substr(scheme_end + 3);
  const size_t slash = std::min(rest.find('/'), rest.size());
  const std::string host = rest.substr(0, slash);
  address.prefix = rest.substr(slash);
  if (host.empty() || host[0] == ':') return wrong("the host is missing");
  if (host.find_first_of("@?#") != std::string::npos ||
      address.prefix.find_first_of("?#") != std::string::npos)
    return wrong("only host, port and path can be given");
  const auto strip = [&](std::string_view end) {
    if (!address.prefix.ends_with(end)) return false;
    address.prefix.resize(address.prefix.size() - end.size());
    return true;
  };
  while (strip("/")) {
  }
  strip("/v1");
  address.origin = scheme + "://" + host;
  return address;
}

struct HttpClient::Impl {
  ServerAddress address;
  std::string api_key;
  CURLM* multi = nullptr;
  CURL* easy = nullptr;
  std::atomic<bool> cancelled{false};
  std::array<char, CURL_ERROR_SIZE> error{};

  ~Impl() {
    if (easy != nullptr) curl_easy_cleanup(easy);
    if (multi != nullptr) curl_multi_cleanup(multi);
  }

  Result<List> head_lines(const ApiRequest& request) const {
    List list;
    bool ok = add_line(list, "Expect:");  // a body of any size goes out at once
    bool has_type = false;
    for (const auto& [name, value] : request.fields) {
      if (!server::is_token(name) || !is_line(value)) continue;
      has_type = has_type || server::equal_ignoring_case(name, "content-type");
      ok = ok && add_line(list, value.empty() ? name + ";" : name + ": " + value);
    }
    if (!has_type) ok = ok && add_line(list, "Content-Type: application/json");
    if (!api_key.empty()) ok = ok && add_line(list, "Authorization: Bearer " + api_key);
    if (!ok) return resource_exhausted("out of memory");
    return list;
  }

  void set_up(const ApiRequest& request, const std::string& target, const List& lines, Transfer& transfer) {
    curl_easy_reset(easy);
    error[0] = '\0';
    const auto set = [&](CURLoption option, auto value) {
      CHECK(curl_easy_setopt(easy, option, value) == CURLE_OK);
    };
    set(CURLOPT_ERRORBUFFER, error.data());
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_PROXY, "");
    set(CURLOPT_HTTP_VERSION, long(CURL_HTTP_VERSION_1_1));
    set(CURLOPT_CONNECTTIMEOUT, kConnectTimeout_s);
    set(CURLOPT_TCP_KEEPALIVE, 1L);
    if (!address.unix_path.empty()) set(CURLOPT_UNIX_SOCKET_PATH, address.unix_path.c_str());
    set(CURLOPT_URL, address.origin.c_str());
    set(CURLOPT_REQUEST_TARGET, target.c_str());
    set(CURLOPT_HTTPHEADER, lines.get());
    if (request.method == "HEAD") {
      set(CURLOPT_NOBODY, 1L);
    } else if (request.method == "POST" || !request.body.empty()) {
      set(CURLOPT_POST, 1L);
      set(CURLOPT_POSTFIELDS, request.body.data());
      set(CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t(request.body.size()));
      if (request.method != "POST") set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
    } else if (request.method != "GET") {
      set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
    }
    set(CURLOPT_WRITEFUNCTION, &Transfer::on_body);
    set(CURLOPT_WRITEDATA, &transfer);
  }

  // Returns when the transfer is over or was cancelled.
  CURLcode run() {
    CHECK(curl_multi_add_handle(multi, easy) == CURLM_OK);
    CURLcode result = CURLE_ABORTED_BY_CALLBACK;
    for (int running = 1; !cancelled.load(std::memory_order_acquire);) {
      if (curl_multi_perform(multi, &running) != CURLM_OK) break;
      if (running == 0) {
        int left = 0;
        while (const CURLMsg* message = curl_multi_info_read(multi, &left)) {
          if (message->msg == CURLMSG_DONE) result = message->data.result;
        }
        break;
      }
      // A cancel() before it wakes it, too.
      if (curl_multi_poll(multi, nullptr, 0, 60'000, nullptr) != CURLM_OK) break;
    }
    curl_multi_remove_handle(multi, easy);
    return result;
  }

  Status unavailable(CURLcode code) const {
    const char* why = error[0] != '\0' ? error.data() : curl_easy_strerror(code);
    const bool nobody = code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST;
    return {Code::kUnavailable, fmt::format("--server {}: {} ({})", address.shown,
                                            nobody ? "no server answers there; start one with invar serve"
                                                   : "the server did not answer",
                                            why)};
  }
};

HttpClient::HttpClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpClient::~HttpClient() = default;

Result<std::unique_ptr<HttpClient>> HttpClient::create(ServerAddress address, std::string api_key) {
  static std::once_flag once;
  static CURLcode initialized = CURLE_FAILED_INIT;
  std::call_once(once, [] { initialized = curl_global_init(CURL_GLOBAL_DEFAULT); });
  auto impl = std::make_unique<Impl>();
  impl->address = std::move(address);
  impl->api_key = std::move(api_key);
  if (initialized == CURLE_OK) {
    impl->multi = curl_multi_init();
    impl->easy = curl_easy_init();
  }
  if (impl->multi == nullptr || impl->easy == nullptr)
    return internal_error("the HTTP library cannot be initialized");
  return std::unique_ptr<HttpClient>(new HttpClient(std::move(impl)));
}

Result<ApiReply> HttpClient::send(const ApiRequest& request, const StreamSink& sink) {
  const Status interrupted(Code::kCancelled, "interrupted");
  if (impl_->cancelled) return interrupted;
  if (!server::is_token(request.method) || !is_target(request.target))
    return invalid_argument(fmt::format("{} {}: not a request that can be sent", shown_value(request.method),
                                        shown_value(request.target)));
  const std::string target = impl_->address.prefix + request.target;
  ASSIGN_OR_RETURN(const List lines, impl_->head_lines(request));
  Transfer transfer{impl_->easy, sink, impl_->cancelled, {}};
  impl_->set_up(request, target, lines, transfer);
  const CURLcode code = impl_->run();
  if (impl_->cancelled) return interrupted;
  if (transfer.too_large)
    return resource_exhausted(
        fmt::format("--server {}: the answer (status {}) is larger than {} bytes; is this a server of Invar?",
                    impl_->address.shown, transfer.reply.status, kMaxReplyBytes));
  if (code == CURLE_OK) transfer.read_head();
  if (transfer.reply.status == 0) return impl_->unavailable(code);
  transfer.reply.broken = code != CURLE_OK;
  return std::move(transfer.reply);
}

void HttpClient::cancel() {
  impl_->cancelled.store(true, std::memory_order_release);
  curl_multi_wakeup(impl_->multi);
}

void HttpClient::resume() {
  impl_->cancelled.store(false, std::memory_order_release);
}

}  // namespace invar
