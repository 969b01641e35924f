#include "server/connection.h"

#include <sys/socket.h>

#include <boost/asio/buffer.hpp>

#include "base/clock.h"
#include "base/trace.h"

namespace invar::server {
namespace {

using boost::system::error_code;
namespace asio = boost::asio;

constexpr int64_t kMillisecond = 1'000'000;
constexpr size_t kKeptCapacity = 4 << 10;  // of a buffer that is empty
constexpr std::string_view kPing = ": ping\n\n";
constexpr int64_t kLingerFactor = 5;  // all of lingering, in linger_ms

bool would_block(const error_code& ec) {
  return ec == asio::error::would_block || ec == asio::error::try_again || ec == asio::error::interrupted;
}

}  // namespace

Connection::Connection(Context& context, Socket socket, std::string remote)
    : context_(context), socket_(std::move(socket)), remote_(std::move(remote)), timer_(context.loop->io) {
  context_.connections.insert(this);
  context_.counters.connections_open++;
}

void Connection::start() {
  set_phase(Phase::kHead, context_.options.deadlines.idle_ms);
  // The first request is often there already.
  on_readable();
}

void Connection::drain() {
  if (phase_ == Phase::kHead && work_ == nullptr) return close("stopped");
  if (phase_ == Phase::kHead || phase_ == Phase::kBody)
    refuse_request({503, "the server is shutting down", "", "shutting_down"}, {{"Retry-After", "5"}});
}

void Connection::set_phase(Phase phase, int64_t deadline_ms) {
  phase_ = phase;
  phase_deadline_ = deadline_ms > 0 ? now_ns() + deadline_ms * kMillisecond : 0;
  watch_timer();
}

// Reads while there is room; past the bound, and after the client's FIN, only a reset is waited for.
void Connection::update_read() {
  if (phase_ == Phase::kClosed || reading_) return;
  if (!eof_ && read_room() > 0) {
    reading_ = true;
    socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const error_code& ec) {
      self->reading_ = false;
      if (!ec) self->on_readable();
    });
  } else if (!watching_) {
    watching_ = true;
    socket_.async_wait(Socket::wait_error, [self = shared_from_this()](const error_code& ec) {
      self->watching_ = false;
      if (!ec) self->on_reset();
    });
  }
}

size_t Connection::read_room() const {
  const bool busy = phase_ == Phase::kHandling || phase_ == Phase::kAnswering || phase_ == Phase::kWriting;
  if (!busy) return context_.scratch.size();
  const size_t bound = context_.options.limits.pipelined_bytes;
  return std::min(context_.scratch.size(), bound - std::min(bound, input_.size()));
}

void Connection::on_readable() {
  if (phase_ == Phase::kClosed || eof_) return;
  error_code ec;
  Traced span("read", SpanKind::kSocket);
  std::vector<char>& scratch = context_.scratch;
  const size_t room = read_room();
  if (room == 0) return update_read();  // it became busy meanwhile
  const size_t n = socket_.read_some(asio::buffer(scratch.data(), room), ec);
  if (ec == asio::error::eof) {
    on_fin();
  } else if (ec && !would_block(ec)) {
    on_reset();
  } else if (!ec) {
    context_.counters.bytes_in += n;
    if (phase_ != Phase::kLingering) {
      on_input({scratch.data(), n});
    } else {
      const int64_t until = now_ns() + context_.options.deadlines.linger_ms * kMillisecond;
      phase_deadline_ = std::min(until, linger_until_);
    }
  }
  update_read();
}

void Connection::on_input(std::string_view bytes) {
  if (phase_ == Phase::kHead || phase_ == Phase::kBody) {
    pump(bytes);
  } else {
    input_.append(bytes);
  }
}

void Connection::on_fin() {
  eof_ = true;
  switch (phase_) {
    case Phase::kHead:
    case Phase::kBody:
      // Whole requests were taken from the input before; what is there is part of one.
      return close("client gone");
    case Phase::kLingering:
      return close("done");
    case Phase::kHandling:
    case Phase::kAnswering:
      if (!work_->streaming) {
        work_->fin_deadline = now_ns() + context_.options.deadlines.fin_grace_ms * kMillisecond;
        watch_timer();
      } else if (context_.options.deadlines.ping_ms > 0) {
        // Only a write shows whether somebody still listens, and the next frame may be far away.
        send_frames(kPing, false);
      }
      return;
    case Phase::kWriting:
    case Phase::kClosed:
      return;
  }
}

void Connection::on_reset() {
  close("client gone");
}

std::string& Connection::output() {
  if (unsent() == 0) last_progress_ = now_ns();
  return output_;
}

void Connection::flush() {
  Traced span("write", SpanKind::kSocket);
  while (unsent() > 0) {
    error_code ec;
    const size_t n = socket_.write_some(asio::buffer(output_.data() + output_start_, unsent()), ec);
    if (would_block(ec)) {
      if (!writing_) {
        writing_ = true;
        socket_.async_wait(Socket::wait_write, [self = shared_from_this()](const error_code& failed) {
          self->writing_ = false;
          if (!failed && self->phase_ != Phase::kClosed) self->flush();
        });
        watch_timer();
      }
      // Sent bytes do not pile up in front of the ones that wait.
      if (output_start_ > output_.size() / 2) {
        output_.erase(0, output_start_);
        output_start_ = 0;
      }
      return count_unsent();
    }
    if (ec) return on_reset();
    output_start_ += n;
    last_progress_ = now_ns();
    context_.counters.bytes_out += n;
    if (work_ != nullptr) work_->record.bytes_out += n;
  }
  output_.clear();
  output_start_ = 0;
  if (output_.capacity() > kKeptCapacity) output_.shrink_to_fit();
  count_unsent();
  if (phase_ == Phase::kWriting) finish_request();
}

void Connection::count_unsent() {
  context_.unsent_bytes += unsent() - counted_unsent_;
  counted_unsent_ = unsent();
}

int64_t Connection::next_deadline() const {
  int64_t next = phase_deadline_;
  const auto also = [&](int64_t deadline) {
    if (deadline != 0 && (next == 0 || deadline < next)) next = deadline;
  };
  const int64_t write_ms = context_.options.deadlines.write_ms;
  if (unsent() > 0 && write_ms > 0) also(last_progress_ + write_ms * kMillisecond);
  if (work_ != nullptr && (phase_ == Phase::kHandling || phase_ == Phase::kAnswering)) {
    also(work_->deadline);
    also(work_->fin_deadline);
    also(work_->ping_at);
  }
  return next;
}

// Deadlines mostly move away, so that the timer is only set again when it would fire too late.
void Connection::watch_timer() {
  const int64_t next = next_deadline();
  if (next == 0 || phase_ == Phase::kClosed || (armed_for_ != 0 && armed_for_ <= next)) return;
  armed_for_ = next;
  timer_.expires_at(std::chrono::steady_clock::time_point(std::chrono::nanoseconds(next)));
  timer_.async_wait([self = shared_from_this()](const error_code& ec) {
    if (ec) return;
    self->armed_for_ = 0;
    self->on_timer();
  });
}

void Connection::on_timer() {
  const int64_t now = now_ns();
  const auto due = [&](int64_t deadline) { return deadline != 0 && deadline <= now; };
  const Deadlines& deadlines = context_.options.deadlines;

  if (phase_ == Phase::kClosed) return;
  if (unsent() > 0 && deadlines.write_ms > 0 && due(last_progress_ + deadlines.write_ms * kMillisecond)) {
    if (work_ != nullptr && work_->streaming) context_.counters.slow_readers++;
    return abort("slow reader");
  }
  if (phase_ == Phase::kHandling || phase_ == Phase::kAnswering) {
    if (due(work_->fin_deadline)) return close("client gone");
    if (due(work_->deadline)) return fail_at_deadline();
    if (due(work_->ping_at)) send_frames(kPing, false);
  } else if (due(phase_deadline_)) {
    if (phase_ == Phase::kHead && work_ == nullptr) return close("idle");
    if (phase_ == Phase::kHead || phase_ == Phase::kBody) return fail_at_deadline();
    if (phase_ == Phase::kLingering) return close("done");
  }
  watch_timer();
}

// Closing while bytes of the client wait unread would send a reset, and that may take away the answer before
// the client has read it. So: end our side, and read on for a while.
void Connection::linger() {
  if (eof_ || context_.options.deadlines.linger_ms <= 0) return close("done");
  error_code ec;
  socket_.shutdown(Socket::shutdown_send, ec);
  if (ec) return close("done");
  input_.clear();
  input_.shrink_to_fit();
  linger_until_ = now_ns() + kLingerFactor * context_.options.deadlines.linger_ms * kMillisecond;
  set_phase(Phase::kLingering, context_.options.deadlines.linger_ms);
  update_read();
}

void Connection::abort(const char* outcome) {
  if (phase_ == Phase::kClosed) return;
  const ::linger reset{1, 0};
  ::setsockopt(socket_.native_handle(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  close(outcome);
}

void Connection::close(const char* outcome) {
  if (phase_ == Phase::kClosed) return;
  const auto self = shared_from_this();
  end_work(outcome);
  phase_ = Phase::kClosed;
  output_.clear();
  output_start_ = 0;
  count_unsent();
  error_code ec;
  socket_.close(ec);
  timer_.cancel();
  context_.connections.erase(this);
  context_.counters.connections_open--;
  if (refused_) context_.refused_connections--;
  context_.on_closed();
}

}  // namespace invar::server
