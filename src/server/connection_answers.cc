#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cmath>

#include "base/clock.h"
#include "base/freed_memory.h"
#include "base/log.h"
#include "server/connection.h"

namespace invar::server {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr double kRetryShare = 0.25;  // of the wait that is predicted now
constexpr int64_t kMaxRetryAfter = 600;
constexpr size_t kSmallAnswer = 64 << 10;  // the limit of connections bounds these
constexpr size_t kLargeBody = 1 << 20;     // from here on freed memory goes back to the system

}  // namespace

void Waker::notify() {
  if (pending.exchange(true, std::memory_order_acq_rel)) return;
  // Weak: a loop that is not run any more would keep this, and this the loop.
  boost::asio::post(loop->io, [waker = weak_from_this()] {
    const auto self = waker.lock();
    if (self == nullptr) return;
    // Before looking, so that news which come while we look make a new visit.
    self->pending.store(false, std::memory_order_release);
    if (const auto c = self->connection.lock()) c->on_news(self->serial);
  });
}

void Connection::on_outcome(uint64_t serial, api::Outcome outcome) {
  if (phase_ != Phase::kHandling || work_->serial != serial) return;  // it is dropped here
  if (auto* response = std::get_if<api::Response>(&outcome)) return answer(std::move(*response));
  work_->exchange = std::move(std::get<std::unique_ptr<api::Exchange>>(outcome));
  phase_ = Phase::kAnswering;
  if (work_->exchange->streaming()) start_stream();
  advance();
}

void Connection::on_news(uint64_t serial) {
  if (phase_ == Phase::kAnswering && work_->serial == serial) advance();
}

void Connection::advance() {
  if (phase_ != Phase::kAnswering) return;
  try {
    advance_exchange();
  } catch (const std::exception& e) {
    // Of ours: what was said so far is not known any more.
    log_error("request {}: {}", work_ != nullptr ? work_->record.id : "", e.what());
    abort("failed");
  }
}

void Connection::advance_exchange() {
  api::Exchange& exchange = *work_->exchange;
  std::string& frames = context_.frames;
  frames.clear();
  bool last = false, broken = false;
  api::Response response;
  try {
    last = exchange.advance(frames);
    broken = last && exchange.broken();
    if (last && !broken && !work_->streaming) response = exchange.response();
  } catch (const std::exception& e) {
    log_error("request {}: {}", work_->record.id, e.what());
    work_->record.outcome = "failed";
    return end_with_error({500, "internal error; the server's log says more", "", "internal_error"});
  }
  if (broken) {
    // Scripted: what a client sees when the server dies. The frames before that are not lost in a reset.
    if (work_->streaming) send_frames(frames, false);
    return close("broken");
  }
  if (last) drop_exchange();
  if (work_->streaming) {
    if (last || !frames.empty()) send_frames(frames, last);
  } else if (last) {
    answer(std::move(response));
  }
}

// Instead of what the exchange would still say. A stream ends with an error frame.
void Connection::end_with_error(const api::Error& why) {
  work_->record.error = api::loggable(why);
  if (!work_->streaming) {
    drop_exchange();
    return refuse_request(why);
  }
  const std::string frame = work_->exchange->error_frame(why);
  drop_exchange();
  send_frames(frame, true);
}

// Once nothing more is wanted of it; a slow client does not hold what it holds.
void Connection::drop_exchange() {
  if (work_->exchange == nullptr) return;
  work_->record.facts = work_->exchange->facts();
  work_->exchange = nullptr;
}

// When a place may be free: a few requests less wait then.
int64_t Connection::retry_after_s() const {
  return std::clamp(int64_t(std::ceil(context_.service.predicted_wait_s() * kRetryShare)), int64_t{1},
                    kMaxRetryAfter);
}

void Connection::answer(api::Response response) {
  Work& work = *work_;
  const size_t unsent = context_.unsent_bytes, bytes = response.body.size();
  if (bytes > kSmallAnswer && unsent > 0 && unsent + bytes > context_.options.limits.all_answers_bytes) {
    return refuse_request(
        {503, "too many answers wait for clients that do not take them; try again", "", "overloaded"},
        {{"Retry-After", "1"}});
  }
  work.record.status = response.status;
  work.record.error = std::move(response.error);
  // Nothing more will come from a client that has ended its side, but what it sent before is still answered.
  work.close = work.close || context_.draining || (eof_ && input_.empty());
  work.fields.emplace_back("x-request-id", work.record.id);
  const auto tells_when = [](const Fields& fields) {
    return std::any_of(fields.begin(), fields.end(), [](const auto& f) { return f.first == "Retry-After"; });
  };
  if (response.status == 429 && !tells_when(response.headers))
    work.fields.emplace_back("Retry-After", fmt::format("{}", retry_after_s()));
  ResponseHead head;
  head.status = response.status;
  head.content_type = response.content_type;
  if (response.status != 204) head.content_length = response.body.size();
  head.close = work.close;
  head.more[0] = &response.headers;
  head.more[1] = &work.fields;
  std::string& out = output();
  append_head(out, head);
  if (!work.head_only) out += response.body;
  if (work.logged)
    context_.request_log->answer(work.record, work.start_ns, response.content_type, response.body);
  set_phase(Phase::kWriting, 0);
  flush();
}

void Connection::start_stream() {
  Work& work = *work_;
  work.streaming = true;
  work.fin_deadline = 0;
  work.record.status = 200;
  // HTTP/1.0 knows no chunks: the end of the connection is the end of the stream.
  const bool chunked = work.parser.head().minor_version >= 1;
  work.close = work.close || context_.draining || !chunked;
  work.fields.emplace_back("Cache-Control", "no-cache");
  work.fields.emplace_back("X-Accel-Buffering", "no");
  work.fields.emplace_back("x-request-id", work.record.id);
  ResponseHead head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.chunked = chunked;
  head.close = work.close;
  head.more[0] = &work.fields;
  append_head(output(), head);
  if (work.logged) context_.request_log->answer(work.record, work.start_ns, head.content_type, "");
  const int64_t ping_ms = context_.options.deadlines.ping_ms;
  if (ping_ms > 0) work.ping_at = now_ns() + ping_ms * kMillisecond;
  flush();
  if (phase_ == Phase::kAnswering) watch_timer();
}

void Connection::send_frames(std::string_view frames, bool last) {
  Work& work = *work_;
  const bool chunked = work.parser.head().minor_version >= 1;
  std::string& out = output();
  if (chunked) {
    append_chunk(out, frames);
    if (last) out += kLastChunk;
  } else {
    out += frames;
  }
  if (work.logged) context_.request_log->data(work.record, work.start_ns, frames);
  const int64_t ping_ms = context_.options.deadlines.ping_ms;
  if (ping_ms > 0) work.ping_at = now_ns() + ping_ms * kMillisecond;
  if (last) phase_ = Phase::kWriting;
  work.largest_frames = std::max(work.largest_frames, frames.size());
  // What comes at once (the scores of a long prompt) says nothing about its reader.
  const size_t most_unsent = context_.options.limits.pending_stream_bytes + work.largest_frames;
  flush();  // sends the last frames at once where it can: `work` may be gone then
  if (unsent() > most_unsent) {
    context_.counters.slow_readers++;
    abort("slow reader");
  }
}

// What runs out of time is told so where that is still possible.
void Connection::fail_at_deadline() {
  Work& work = *work_;
  work.close = true;
  work.record.outcome = "deadline";
  if (phase_ == Phase::kHead || phase_ == Phase::kBody) {
    return refuse_request({408, "the request did not arrive in time", "", "request_timeout"});
  }
  end_with_error({504,
                  fmt::format("the request took longer than {:.1f} s",
                              double(context_.options.deadlines.request_ms) / 1000),
                  "", "request_timeout"});
}

void Connection::finish_request() {
  const bool close_after = work_->close;
  end_work("done");
  if (close_after) return linger();
  set_phase(Phase::kHead, context_.options.deadlines.idle_ms);
  if (context_.draining) return linger();
  pump({});
}

// The request is over, however it ended: count it, tell about it, and free what it holds.
void Connection::end_work(const char* outcome) {
  if (work_ == nullptr) return;
  std::unique_ptr<Work> work = std::move(work_);
  RequestRecord& record = work->record;
  if (work->exchange != nullptr) record.facts = work->exchange->facts();
  if (record.facts.first_token_ns > 0)
    record.ttft_ms = double(record.facts.first_token_ns - work->start_ns) * 1e-6;
  if (record.outcome.empty()) record.outcome = outcome;
  if (record.status == 0 && phase_ != Phase::kHead) record.status = 499;
  record.ms = double(now_ns() - work->start_ns) * 1e-6;
  if (record.facts.choices > 0 && !context_.service.model_names.empty()) {
    record.model = context_.service.model_names.front();
  }
  const bool large = work->body_bytes >= kLargeBody;
  context_.body_bytes -= work->body_bytes;
  context_.counters.requests_open--;
  context_.counters.count(record);
  if (work->logged) context_.request_log->end(record);
  const bool quiet = work->built_in != BuiltIn::kNone && record.status == 200 && !context_.options.log_probes;
  if (!quiet) context_.access.write(record);
  work.reset();
  // The allocator keeps what was freed, by the million of JSON's small pieces too, for a next time that may
  // not come.
  if (large) boost::asio::post(context_.workers, [] { return_freed_pages(); });
}

}  // namespace invar::server
