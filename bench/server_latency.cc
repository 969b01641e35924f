// bench_server_latency: time from a token's publication by the engine to its frame in the server's socket,
// and on to a client on this machine. One process: the engine says a script's words at a fixed pace, the real
// server sends them (send() is the program's own, which looks at the clock), one thread reads all streams.
// Beside it: how long this machine takes to wake a thread at all.
//   bench_server_latency [--streams 8] [--tokens 500] [--step-ms 10] [engine flags of `invar serve`]
// Prints percentiles over all tokens, and how many tokens shared a frame with another one.

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "api/protocol.h"
#include "base/clock.h"
#include "base/thread_latency.h"
#include "cli/engine_flags.h"
#include "cli/flags.h"
#include "cli/served_model.h"
#include "cli/verbs.h"
#include "server/server.h"

namespace invar {
namespace {

constexpr std::string_view kWord = " the";  // one token in the vocabularies of all known models

size_t count(std::string_view text, std::string_view what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + what.size()))
    ++n;
  return n;
}

// When the tokens that the server has sent were in the socket, by the client's port. Server's thread; read
// when it is over.
std::map<uint16_t, std::vector<int64_t>>& sent_ns() {
  static std::map<uint16_t, std::vector<int64_t>> sent;
  return sent;
}

void note_sent(int fd, std::string_view bytes) {
  const int64_t now = now_ns();
  const size_t words = count(bytes, kWord);
  if (words == 0) return;
  sockaddr_in peer{};
  socklen_t size = sizeof peer;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return;
  std::vector<int64_t>& sent = sent_ns()[ntohs(peer.sin_port)];
  sent.insert(sent.end(), words, now);
}

// When each token of a stream was published: written by the engine thread, read when it is over.
struct Published {
  std::vector<int64_t> at_ns;
  std::atomic<size_t> count{0};
};

struct Client {
  int fd = -1;
  uint16_t port = 0;
  std::string unread;               // the end of what came, in which a word may have begun
  std::vector<int64_t> arrived_ns;  // of each token
  size_t frames = 0;
  bool ended = false;
};

int connect_to(uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return -1;
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return fd;
}

// Everything that is there. A client's frames are split on line ends, so that no word is counted twice.
void read_client(Client& client) {
  char buffer[1 << 16];
  const ssize_t n = ::recv(client.fd, buffer, sizeof buffer, MSG_DONTWAIT);
  const int64_t now = now_ns();
  if (n <= 0) {
    client.ended = n == 0 || (errno != EAGAIN && errno != EINTR);
    return;
  }
  client.unread.append(buffer, size_t(n));
  const size_t end = client.unread.rfind("\n\n");
  if (end == std::string::npos) return;
  const std::string_view whole = std::string_view(client.unread).substr(0, end + 2);
  client.frames += count(whole, "\"content\":\" ");
  client.arrived_ns.insert(client.arrived_ns.end(), count(whole, kWord), now);
  client.ended = whole.find("[DONE]") != std::string_view::npos;
  client.unread.erase(0, end + 2);
}

uint16_t port_of(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

void read_all(std::vector<Client>& clients) {
  std::vector<pollfd> polled;
  for (const Client& c : clients)
    polled.push_back({c.fd, POLLIN, 0});
  size_t open = clients.size();
  while (open > 0 && ::poll(polled.data(), polled.size(), 60'000) > 0) {
    for (size_t i = 0; i < clients.size(); ++i) {
      if (polled[i].revents == 0) continue;
      read_client(clients[i]);
      if (!clients[i].ended) continue;
      polled[i].fd = -1;
      --open;
    }
  }
}

// What the machine itself needs: from one thread's write to an eventfd, after which it computes on, until a
// sleeping thread has read it; and what a computing thread loses to others and to a hypervisor.
struct Machine {
  std::vector<double> wake_us;
  double computed_ms = 0, lost_ms = 0, longest_loss_ms = 0;
};

Machine measure_machine() {
  constexpr int kWakes = 500;
  constexpr int64_t kComputeNs = 2'000'000, kLossNs = 100'000;
  const int fd = ::eventfd(0, EFD_CLOEXEC);
  std::atomic<int64_t> written_ns{0};
  Machine machine;
  std::thread sleeper([&] {
    prefer_short_slices();
    for (int i = 0; i < kWakes; ++i) {
      uint64_t value = 0;
      if (::read(fd, &value, sizeof value) != sizeof value) return;
      machine.wake_us.push_back(double(now_ns() - written_ns.load()) * 1e-3);
    }
  });
  for (int i = 0; i < kWakes; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(8));
    const int64_t start = now_ns();
    written_ns = start;
    const uint64_t one = 1;
    if (::write(fd, &one, sizeof one) != sizeof one) break;
    for (int64_t last = start, now; last - start < kComputeNs; last = now) {
      now = now_ns();
      if (now - last < kLossNs) continue;
      machine.lost_ms += double(now - last) * 1e-6;
      machine.longest_loss_ms = std::max(machine.longest_loss_ms, double(now - last) * 1e-6);
    }
    machine.computed_ms += double(now_ns() - start) * 1e-6;
  }
  sleeper.join();
  ::close(fd);
  return machine;
}

struct Load {
  int32_t streams = 8, tokens = 500, step_ms = 10;
};

std::string write_script(const Load& load) {
  std::string words;
  for (int i = 0; i < load.tokens; ++i)
    words += kWord;
  std::string path = fmt::format("/tmp/bench_server_latency.{}.json", ::getpid());
  std::ofstream(path) << fmt::format(R"({{"rules":[{{"text":"{}","group_ms":{}}}]}})", words, load.step_ms);
  return path;
}

double percentile(const std::vector<double>& sorted, double p) {
  return sorted[std::min(sorted.size() - 1, size_t(p * double(sorted.size())))];
}

void print_percentiles(const char* name, std::vector<double> us) {
  std::sort(us.begin(), us.end());
  fmt::print("  {}: least {:.0f} us, p50 {:.0f}, p90 {:.0f}, p99 {:.0f}, p99.9 {:.0f}, most {:.0f}\n", name,
             us.front(), percentile(us, 0.5), percentile(us, 0.9), percentile(us, 0.99),
             percentile(us, 0.999), us.back());
}

Status measure(EngineFlags& engine, const Load& load) {
  const std::string script = write_script(load);
  ServedModelOptions options;
  options.script = script;
  auto served = ServedModel::load(engine, options);
  ::unlink(script.c_str());
  RETURN_IF_ERROR(served.status());

  // Streams in the order of their submission; the k-th notification that brings a token is that of token k.
  std::vector<std::unique_ptr<Published>> published;
  std::mutex mutex;
  api::Service service = (*served)->service();
  service.submit = [&](GenerateRequest request, int32_t choices) {
    auto mine = std::make_unique<Published>();
    mine->at_ns.resize(size_t(load.tokens) + 64);
    Published* p = mine.get();
    {
      std::lock_guard lock(mutex);
      published.push_back(std::move(mine));
    }
    request.notify = [p, inner = std::move(request.notify)] {
      const size_t k = p->count.fetch_add(1, std::memory_order_relaxed);
      if (k < p->at_ns.size()) p->at_ns[k] = now_ns();
      inner();
    };
    return (*served)->service().submit(std::move(request), choices);
  };

  server::ServerOptions server_options;
  server_options.port = 0;
  server_options.access_sink = [](std::string_view) {};
  ASSIGN_OR_RETURN(server::Endpoint endpoint, server::Endpoint::open(server_options));
  server::Server server(std::move(endpoint), service, api::find_route);
  std::thread io([&] { server.run(); });

  std::vector<Client> clients(size_t(load.streams));
  const std::string body = fmt::format(
      R"({{"messages":[{{"role":"user","content":"x"}}],"stream":true,"max_tokens":{}}})", load.tokens);
  const std::string text = fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
  Status status;
  for (Client& c : clients) {
    c.fd = connect_to(server.port());
    c.port = port_of(c.fd);
    if (c.fd < 0 || ::send(c.fd, text.data(), text.size(), 0) != ssize_t(text.size()))
      status = internal_error("cannot reach the server");
    // Submissions in the order of the clients.
    while (status.ok()) {
      std::lock_guard lock(mutex);
      if (published.size() == size_t(&c - clients.data()) + 1) break;
    }
  }
  if (status.ok()) {
    // As if it ran on another machine: only when nobody else wants the processor.
    const sched_param none{};
    ::sched_setscheduler(0, SCHED_IDLE, &none);
    read_all(clients);
    ::sched_setscheduler(0, SCHED_OTHER, &none);
  }
  for (const Client& c : clients)
    ::close(c.fd);
  server.drain();
  io.join();
  RETURN_IF_ERROR(status);

  std::vector<double> in_socket, at_client;
  size_t frames = 0;
  for (size_t i = 0; i < clients.size(); ++i) {
    const Client& c = clients[i];
    const std::vector<int64_t>& sent = sent_ns()[c.port];
    frames += c.frames;
    if (c.arrived_ns.size() != size_t(load.tokens) || sent.size() != c.arrived_ns.size())
      return internal_error(
          fmt::format("stream {} brought {} of {} tokens", i, c.arrived_ns.size(), load.tokens));
    for (size_t k = 0; k < c.arrived_ns.size(); ++k) {
      in_socket.push_back(double(sent[k] - published[i]->at_ns[k]) * 1e-3);
      at_client.push_back(double(c.arrived_ns[k] - published[i]->at_ns[k]) * 1e-3);
    }
  }
  const size_t tokens = at_client.size();
  fmt::print("{} streams, {} tokens each, one per {} ms; {} tokens shared a frame with the one before\n",
             load.streams, load.tokens, load.step_ms, tokens - std::min(frames, tokens));
  print_percentiles("in the socket", std::move(in_socket));
  print_percentiles("at the client", std::move(at_client));
  Machine machine = measure_machine();
  print_percentiles("bare wake of a thread", std::move(machine.wake_us));
  fmt::print(
      "  a computing thread lost {:.1f} % of its time in pauses of at least 0.1 ms, the longest {:.1f} ms\n",
      100 * machine.lost_ms / machine.computed_ms, machine.longest_loss_ms);
  return {};
}

int run(const std::vector<std::string>& args) {
  EngineFlags engine;
  Load load;
  Flags flags("bench_server_latency", "from a token's publication to its frame at the client");
  flags.integer("--streams", &load.streams, "streams at once (default: 8)", 1, 1000);
  flags.integer("--tokens", &load.tokens, "tokens of each (default: 500)", 1, 100'000);
  flags.integer("--step-ms", &load.step_ms, "time of a step of the engine (default: 10)", 0, 1000);
  engine.declare(flags);
  if (const auto end = parse_or_end(flags, args)) return *end;
  if (const Status s = measure(engine, load); !s.ok()) return fail(s);
  return 0;
}

}  // namespace
}  // namespace invar

extern "C" ssize_t send(int fd, const void* data, size_t size, int flags) {
  const ssize_t n = ::syscall(SYS_sendto, fd, data, size, flags, nullptr, 0);
  if (n > 0) invar::note_sent(fd, {static_cast<const char*>(data), size_t(n)});
  return n;
}

extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  const ssize_t n = ::syscall(SYS_sendmsg, fd, message, flags);
  if (n > 0 && message->msg_iovlen == 1)
    invar::note_sent(fd, {static_cast<const char*>(message->msg_iov[0].iov_base), size_t(n)});
  return n;
}

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  return invar::run(std::vector<std::string>(argv + 1, argv + argc));
}
