#include "server/http_counters.h"

#include "server/metrics_page.h"

namespace invar::server {
namespace {

std::string_view known_method(std::string_view method) {
  for (const std::string_view known : {"GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH"}) {
    if (method == known) return method;
  }
  return "other";
}

void write_http(MetricsPage& page, const HttpCounters& http) {
  page.counter("invar_http_requests_total", "Requests by route, method and status; status 0 = not answered.");
  for (const auto& [key, count] : http.requests) {
    const auto& [route, method, status] = key;
    page.sample({{"route", route}, {"method", method}, {"status", std::to_string(status)}}, double(count));
  }
  const auto one_counter = [&](std::string_view name, std::string_view help, uint64_t value) {
    page.counter(name, help);
    page.sample({}, double(value));
  };
  one_counter("invar_http_received_bytes_total", "Bytes of requests.", http.bytes_in);
  one_counter("invar_http_sent_bytes_total", "Bytes of answers.", http.bytes_out);
  one_counter("invar_http_connections_accepted_total", "Accepted connections.", http.connections_accepted);
  one_counter("invar_http_connections_refused_total", "Connections above the limit.",
              http.connections_refused);
  one_counter("invar_http_slow_readers_total", "Streams cancelled because their client did not read.",
              http.slow_readers);
  page.gauge("invar_http_connections", "Open connections.");
  page.sample({}, double(http.connections_open));
  page.gauge("invar_http_requests_open", "Requests being read, computed or answered.");
  page.sample({}, double(http.requests_open));
}

// One family per quantity, once under vLLM's name and once under ours where both exist: dashboards and
// routers look for the former.
class EnginePage {
 public:
  EnginePage(MetricsPage& page, std::string_view model) : page_(page), model_(model) {}

  void gauge(std::string_view name, std::string_view help, double value) {
    page_.gauge(name, help);
    page_.sample({{"model_name", model_}}, value);
  }
  void counter(std::string_view name, std::string_view help, double value) {
    page_.counter(name, help);
    page_.sample({{"model_name", model_}}, value);
  }
  void histogram(std::string_view name, std::string_view help, const HistogramStats& stats) {
    page_.histogram(name, help);
    // A histogram that was never made has neither bounds nor counts.
    const int64_t none[] = {0};
    const std::span<const int64_t> counts = stats.counts.empty() ? std::span(none) : std::span(stats.counts);
    page_.histogram_samples({{"model_name", model_}}, stats.bounds, counts, stats.sum);
  }
  void finished(const RequestStats& requests) {
    page_.counter("vllm:request_success_total", "Requests that ended, by reason.");
    const auto one = [&](std::string_view reason, int64_t count) {
      page_.sample({{"model_name", model_}, {"finished_reason", reason}}, double(count));
    };
    one("stop", requests.stopped);
    one("length", requests.reached_length);
    one("abort", requests.cancelled);
    one("error", requests.failed);
  }

 private:
  MetricsPage& page_;
  std::string_view model_;
};

void write_engine(EnginePage& page, const EngineStats& s) {
  const double kv_usage = s.pages_total > 0 ? double(s.pages_used) / double(s.pages_total) : 0;
  page.gauge("vllm:num_requests_running", "Requests that take part in steps.", s.running);
  page.gauge("vllm:num_requests_waiting", "Requests that wait for their turn.", s.waiting);
  page.gauge("invar_predicted_wait_seconds", "How long a request that comes now would wait for its turn.",
             s.predicted_wait_s);
  page.gauge("vllm:kv_cache_usage_perc", "KV pages in use; 1 is all of them.", kv_usage);
  page.counter("vllm:num_preemptions_total", "Requests that gave their pages up for others.",
               double(s.preemptions));
  page.counter("vllm:prompt_tokens_total", "Prompt tokens computed.", double(s.prompt_tokens));
  page.counter("vllm:generation_tokens_total", "Tokens generated.", double(s.generated_tokens));
  page.finished(s.requests);
  page.histogram("vllm:iteration_tokens_total", "Tokens of a step.", s.step_tokens);
  page.histogram("vllm:time_to_first_token_seconds", "Submitted to first token.",
                 s.requests.time_to_first_token_s);
  page.histogram("vllm:inter_token_latency_seconds", "Between two tokens of a request.",
                 s.requests.inter_token_s);
  page.histogram("vllm:e2e_request_latency_seconds", "Submitted to last token.", s.requests.end_to_end_s);
  page.histogram("vllm:request_queue_time_seconds", "Submitted to first scheduled.", s.requests.queue_s);
  page.histogram("vllm:request_prefill_time_seconds", "First scheduled to first token.",
                 s.requests.prefill_s);
  page.histogram("vllm:request_decode_time_seconds", "First token to last token.", s.requests.decode_s);
  page.histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", s.requests.prompt_tokens);
  page.histogram("vllm:request_generation_tokens", "Generated tokens of a request.",
                 s.requests.generated_tokens);

  page.gauge("invar_requests_live", "Requests submitted and not ended.", s.live);
  page.counter("invar_steps_total", "Steps of the engine.", double(s.steps));
  page.counter("invar_recomputed_tokens_total", "Tokens computed again after a preemption.",
               double(s.recomputed_tokens));
  page.gauge("invar_kv_pages_used", "KV pages that requests use.", double(s.pages_used));
  page.gauge("invar_kv_pages_cached", "KV pages kept for later prompts, given up when needed.",
             double(s.pages_idle));
  page.counter("invar_prefix_evictions_total", "Prefix pages given up for others.",
               double(s.prefix_evictions));
  page.gauge("invar_kv_pages", "KV pages there are.", double(s.pages_total));
  page.gauge("invar_kv_bytes", "Memory of all KV pages.", double(s.kv_bytes_total));
  page.gauge("invar_scratch_bytes", "Memory of the step's intermediate results.", double(s.scratch_bytes));
}

}  // namespace

void HttpCounters::count(const RequestRecord& record) {
  prompt_tokens += uint64_t(record.facts.prompt_tokens);
  cached_tokens += uint64_t(record.facts.cached_tokens);
  requests[{record.route, std::string(known_method(record.method)), record.status}]++;
}

std::string metrics_text(const HttpCounters& http, const EngineStats& engine, std::string_view model) {
  MetricsPage page;
  EnginePage engine_page(page, model);
  write_engine(engine_page, engine);
  engine_page.counter("vllm:prefix_cache_queries_total", "Prompt tokens of requests that ended.",
                      double(http.prompt_tokens));
  engine_page.counter("vllm:prefix_cache_hits_total", "Of these, tokens that were in the cache.",
                      double(http.cached_tokens));
  write_http(page, http);
  return std::move(page.text());
}

}  // namespace invar::server
