#pragma once
// Connection: one client's socket and the requests that come over it, one after the other. A state machine on
// the server's I/O thread. It owns itself through its pending operations; the context knows it by address.
// The socket is always read, up to a bound, so that a client that leaves is noticed while its answer is made.

#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "server/context.h"
#include "server/work.h"

namespace invar::server {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Context& context, Socket socket, std::string remote);

  void start();
  void refuse();  // instead of start(), above the limit of connections: a 503
  void drain();   // closes if nothing is in progress; otherwise the request in progress is the last one
  void abort(const char* outcome);  // at once, with a reset; drops what is in progress

 private:
  friend struct Waker;

  enum class Phase {
    kHead,       // between requests, or in a head
    kBody,       //
    kHandling,   // on a worker
    kAnswering,  // an exchange runs
    kWriting,    // the answer is complete, but not yet sent
    kLingering,  // nothing more will be sent
    kClosed,
  };

  // connection.cc: bytes, time, life and death.
  void update_read();
  size_t read_room() const;  // bytes that may be taken now
  void on_readable();
  void on_fin();
  void on_reset();
  void on_input(std::string_view bytes);
  std::string& output();  // to append to; then flush()
  void flush();
  void count_unsent();
  void watch_timer();
  void on_timer();
  int64_t next_deadline() const;
  void set_phase(Phase phase, int64_t deadline_ms);
  void linger();
  void close(const char* outcome);

  // connection_requests.cc: from bytes to a request that is judged and handed on.
  void pump(std::string_view fresh);
  void begin_request();
  bool account_body();
  void judge_head();
  void refuse_request(const api::Error& error, Fields more = {});
  void dispatch();
  void answer_options();
  api::Response metrics() const;

  // connection_answers.cc: from its outcome to the last byte.
  void on_outcome(uint64_t serial, api::Outcome outcome);
  void on_news(uint64_t serial);
  void advance();
  void advance_exchange();
  void end_with_error(const api::Error& why);
  void drop_exchange();
  int64_t retry_after_s() const;
  void answer(api::Response response);
  void start_stream();
  void send_frames(std::string_view frames, bool last);
  void fail_at_deadline();
  void finish_request();
  void end_work(const char* outcome);

  size_t unsent() const { return output_.size() - output_start_; }

  Context& context_;
  Socket socket_;
  const std::string remote_;
  boost::asio::steady_timer timer_;

  Phase phase_ = Phase::kHead;
  bool refused_ = false;
  bool eof_ = false;  // the client sends nothing more
  bool reading_ = false, watching_ = false, writing_ = false, pumping_ = false;
  int64_t phase_deadline_ = 0, armed_for_ = 0;  // now_ns(); 0 = none
  int64_t linger_until_ = 0;
  int64_t last_progress_ = 0;  // of sending output_
  std::string input_;          // read ahead
  std::string output_;         // not sent yet, from output_start_ on
  size_t output_start_ = 0;
  size_t counted_unsent_ = 0;   // of Context::unsent_bytes
  std::unique_ptr<Work> work_;  // the request in progress
};

}  // namespace invar::server
