#include "engine/request_metrics.h"

#include <vector>

#include "base/check.h"

namespace invar {
namespace {

std::vector<double> request_seconds() {
  return {0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
}

std::vector<double> first_token_seconds() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
          1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
}

std::vector<double> inter_token_seconds() {
  return {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
}

// 1, 2, 5, 10, 20, 50 ... up to the largest that can occur.
std::vector<double> token_counts(int32_t most) {
  std::vector<double> bounds;
  for (int64_t decade = 1; decade <= most; decade *= 10)
    for (const int64_t digit : {1, 2, 5})
      if (digit * decade <= most) bounds.push_back(double(digit * decade));
  return bounds;
}

std::vector<double> powers_of_two() {
  return {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
}

double seconds(int64_t from_ns, int64_t to_ns) {
  return double(to_ns - from_ns) * 1e-9;
}

}  // namespace

RequestMetrics::RequestMetrics(int32_t context)
    : queue_(request_seconds()),
      prefill_(request_seconds()),
      decode_(request_seconds()),
      end_to_end_(request_seconds()),
      prompt_tokens_(token_counts(context)),
      generated_tokens_(token_counts(context)),
      first_token_(first_token_seconds()),
      inter_token_(inter_token_seconds()),
      step_tokens_(powers_of_two()) {}

void RequestMetrics::published(RequestTimes& times, int32_t tokens, int64_t now) {
  generated_total_ += tokens;
  if (times.first_token == 0) {
    times.first_token = now;
    first_token_.observe(seconds(times.submitted, now));
  } else {
    inter_token_.observe(seconds(times.last_token, now));
  }
  times.last_token = now;
}

void RequestMetrics::ended(const RequestTimes& times, FinishReason reason, int32_t prompt, int32_t generated,
                           int64_t now) {
  switch (reason) {
    case FinishReason::kNone:
      CHECK(false);
      break;
    case FinishReason::kStop:
      ++stopped_;
      break;
    case FinishReason::kLength:
      ++reached_length_;
      break;
    case FinishReason::kCancelled:
      ++cancelled_;
      break;
    case FinishReason::kError:
      ++failed_;
      break;
  }
  prompt_tokens_.observe(prompt);
  generated_tokens_.observe(generated);
  queue_.observe(seconds(times.submitted, times.scheduled > 0 ? times.scheduled : now));
  if (times.first_token > 0) {
    prefill_.observe(seconds(times.scheduled, times.first_token));
    decode_.observe(seconds(times.first_token, times.last_token));
  }
  end_to_end_.observe(seconds(times.submitted, now));
  ++ended_total_;
}

RequestStats RequestMetrics::snapshot() const {
  return {.stopped = stopped_,
          .reached_length = reached_length_,
          .cancelled = cancelled_,
          .failed = failed_,
          .queue_s = queue_.snapshot(),
          .prefill_s = prefill_.snapshot(),
          .decode_s = decode_.snapshot(),
          .end_to_end_s = end_to_end_.snapshot(),
          .prompt_tokens = prompt_tokens_.snapshot(),
          .generated_tokens = generated_tokens_.snapshot(),
          .time_to_first_token_s = first_token_.snapshot(),
          .inter_token_s = inter_token_.snapshot()};
}

}  // namespace invar
