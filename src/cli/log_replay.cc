#include "cli/log_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/json_text.h"
#include "base/quote.h"
#include "cli/receipt_check.h"
#include "cli/sse_reader.h"

namespace invar {
namespace {

using server::LoggedRequest;

constexpr size_t kShownBytes = 300;

// Answers of the connection: to a key that the log does not keep, a time that passed, bytes that were not
// taken.
constexpr int kOfTransport[] = {401, 408, 413, 415, 417, 431, 499, 504};
// Answers that depend on what else the server did.
constexpr int kOfTheMoment[] = {429, 503};

// What a client's head says about the connection, and what is set anew.
constexpr std::string_view kNotSent[] = {
    "host",    "connection", "content-length", "transfer-encoding", "keep-alive", "te",
    "trailer", "upgrade",    "expect",         "accept-encoding"};

template <class List, class T>
bool contains(const List& list, const T& value) {
  return std::find(std::begin(list), std::end(list), value) != std::end(list);
}

bool is_stream(const std::string& content_type) {
  return content_type.starts_with("text/event-stream");
}

// What was written in mid-stream may be cut within a frame: the rest of it is left out.
Result<AnswerTrace> trace_of(bool stream, std::string_view body,
                             const std::vector<server::LoggedFrame>& frames) {
  AnswerTrace trace;
  if (!stream) {
    if (!body.empty()) trace.add(body);
    return trace;
  }
  SseReader reader;
  const SseReader::OnEvent on_event = [&](std::string_view data) { trace.add(data); };
  RETURN_IF_ERROR(reader.feed(body, on_event));
  for (const server::LoggedFrame& frame : frames)
    RETURN_IF_ERROR(reader.feed(frame.data, on_event));
  return trace;
}

AnswerTrace::Difference whole_difference(const char* field, std::string_view recorded,
                                         std::string_view replayed) {
  return {0, field, printable(recorded, kShownBytes), printable(replayed, kShownBytes)};
}

ApiRequest request_of(const LoggedRequest& logged) {
  ApiRequest request;
  request.method = logged.method;
  request.target = logged.target;
  for (const auto& field : logged.fields) {
    if (!contains(kNotSent, std::string_view(field.first))) request.fields.push_back(field);
  }
  request.body = logged.body;
  return request;
}

// Why it is not even sent; "": it is.
std::string reason_to_skip(const LoggedRequest& logged, const AnswerTrace& recorded, bool local) {
  if (logged.status == 0) return "no answer is in the log";
  if (contains(kOfTransport, logged.status))
    return fmt::format("its answer, {}, was about the connection", logged.status);
  if (local && logged.method == "OPTIONS") return "only a running server answers OPTIONS; give --server";
  if (recorded.value("invar.seed") == nullptr && logged.outcome != "done" && is_stream(logged.content_type) &&
      !is_determined(logged.body))
    return "it had a random seed, and the log ends before the receipt that tells it";
  return "";
}

}  // namespace

Result<ReplayOutcome> replay_request(const LoggedRequest& logged, ApiTarget& target) {
  ReplayOutcome outcome;
  const bool stream = is_stream(logged.content_type);
  ASSIGN_OR_RETURN(const AnswerTrace recorded, trace_of(stream, logged.answer, logged.frames));
  outcome.streamed = stream;
  outcome.frames = recorded.frames();
  outcome.whole = logged.outcome == "done";
  outcome.skipped = reason_to_skip(logged, recorded, target.service() != nullptr);
  if (!outcome.skipped.empty()) return outcome;

  ApiRequest request = request_of(logged);
  if (const std::string* seed = recorded.value("invar.seed")) request.body = with_seed(request.body, *seed);
  const auto reply = target.send(request);
  if (!reply.ok() && reply.status().code() == Code::kInvalidArgument) {
    outcome.skipped = reply.status().message();
    return outcome;
  }
  if (!reply.ok()) return reply.status();
  if (reply->status != logged.status) {
    if (contains(kOfTheMoment, logged.status) || contains(kOfTheMoment, reply->status))
      outcome.skipped = fmt::format("the answer was {} and is {} now: it depends on the load", logged.status,
                                    reply->status);
    else
      outcome.difference =
          whole_difference("status", std::to_string(logged.status), std::to_string(reply->status));
    return outcome;
  }
  if (stream != reply->is_stream()) {
    outcome.difference = whole_difference("content-type", logged.content_type, reply->content_type);
    return outcome;
  }
  if (logged.method == "HEAD") return outcome;  // its body is in the log, but was not sent
  ASSIGN_OR_RETURN(const AnswerTrace replayed, trace_of(stream, reply->body, {}));
  outcome.difference = AnswerTrace::first_difference(recorded, replayed, outcome.whole);
  return outcome;
}

std::string recorded_model(const server::LoggedRequests& log) {
  for (const LoggedRequest& request : log.requests) {
    if (request.status != 200) continue;
    const auto trace = trace_of(is_stream(request.content_type), request.answer, request.frames);
    if (!trace.ok()) continue;
    const std::string* name = trace->value("model");
    if (name == nullptr) continue;
    const auto text = api::parse_json(*name);
    if (text.ok() && text->is_string() && !text->get_string().empty()) return std::string(text->get_string());
  }
  return "";
}

}  // namespace invar
