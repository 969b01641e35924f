#include "server/http_counters.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "server/metrics_page.h"
#include "server/testing/raw_client.h"
#include "server/testing/test_protocol.h"

namespace invar::server {
namespace {

// A strict reader of the text format: families whole and once, HELP and TYPE before their samples, histograms
// complete. Returns the samples; a fault ends the test.
using Samples = std::map<std::string, double>;

Samples parse_page(const std::string& page) {
  static const std::regex kName("[a-zA-Z_:][a-zA-Z0-9_:]*");
  static const std::regex kSample(
      R"re(([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"(?:,[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*")*\})? (\+Inf|-?[0-9.]+(?:e[+-]?[0-9]+)?))re");
  EXPECT_TRUE(page.ends_with("\n"));
  Samples samples;
  std::set<std::string> seen;
  std::string family, type;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, word, name;
    if (line.starts_with("#")) {
      words >> hash >> word >> name;
      EXPECT_EQ(hash, "#");
      EXPECT_TRUE(std::regex_match(name, kName)) << line;
      if (word == "HELP") {
        EXPECT_TRUE(seen.insert(name).second) << "family twice: " << line;
        family = name;
        type.clear();
      } else {
        EXPECT_EQ(word, "TYPE");
        EXPECT_EQ(name, family) << line;
        words >> type;
        EXPECT_TRUE(type == "counter" || type == "gauge" || type == "histogram") << line;
        if (type == "counter") EXPECT_TRUE(name.ends_with("_total")) << line;
      }
      continue;
    }
    std::smatch parts;
    if (!std::regex_match(line, parts, kSample)) {
      ADD_FAILURE() << "not a sample: " << line;
      continue;
    }
    EXPECT_FALSE(type.empty()) << line;
    const std::string base = parts[1];
    const std::string rest = base.substr(std::min(base.size(), family.size()));
    EXPECT_TRUE(base.starts_with(family)) << line;
    EXPECT_TRUE(type == "histogram" ? rest == "_bucket" || rest == "_sum" || rest == "_count" : rest.empty())
        << line;
    const std::string key = base + std::string(parts[2]);
    EXPECT_FALSE(samples.contains(key)) << "sample twice: " << line;
    samples[key] = parts[3] == "+Inf" ? std::numeric_limits<double>::infinity() : std::stod(parts[3]);
  }
  return samples;
}

EngineStats some_stats() {
  EngineStats stats;
  stats.steps = 10;
  stats.running = 2;
  stats.waiting = 5;
  stats.predicted_wait_s = 1.5;
  stats.prompt_tokens = 123456789012;
  stats.pages_used = 25;
  stats.pages_total = 100;
  stats.requests.stopped = 4;
  stats.requests.time_to_first_token_s = {{0.001, 0.25}, {1, 2, 3}, 7.5};
  return stats;
}

TEST(HttpCounters, page_has_the_names_that_dashboards_and_routers_look_for) {
  HttpCounters http;
  RequestRecord record;
  record.method = "POST";
  record.route = "/v1/\"odd\\\n";
  record.status = 200;
  record.facts.prompt_tokens = 100;
  record.facts.cached_tokens = 40;
  http.count(record);
  http.count(record);
  record.facts = {};
  record.method = "NONSENSE";
  record.status = 405;
  http.count(record);
  Samples samples = parse_page(metrics_text(http, some_stats(), "a \"model\""));
  const std::string model = R"({model_name="a \"model\""})";
  EXPECT_EQ(samples.at("vllm:num_requests_running" + model), 2);
  EXPECT_EQ(samples.at("vllm:num_requests_waiting" + model), 5);
  EXPECT_EQ(samples.at("invar_predicted_wait_seconds" + model), 1.5);
  EXPECT_EQ(samples.at("vllm:kv_cache_usage_perc" + model), 0.25);
  EXPECT_EQ(samples.at("vllm:prompt_tokens_total" + model), 123456789012);
  EXPECT_EQ(samples.at(R"(vllm:request_success_total{model_name="a \"model\"",finished_reason="stop"})"), 4);
  EXPECT_EQ(samples.at("vllm:prefix_cache_queries_total" + model), 200);
  EXPECT_EQ(samples.at("vllm:prefix_cache_hits_total" + model), 80);
  const std::string ttft = R"(vllm:time_to_first_token_seconds_bucket{model_name="a \"model\"",le=)";
  EXPECT_EQ(samples.at(ttft + "\"0.001\"}"), 1);
  EXPECT_EQ(samples.at(ttft + "\"0.25\"}"), 3);
  EXPECT_EQ(samples.at(ttft + "\"+Inf\"}"), 6);
  EXPECT_EQ(samples.at("vllm:time_to_first_token_seconds_count" + model), 6);
  EXPECT_EQ(samples.at("vllm:time_to_first_token_seconds_sum" + model), 7.5);
  EXPECT_EQ(samples.at(R"(invar_http_requests_total{route="/v1/\"odd\\\n",method="POST",status="200"})"), 2);
  EXPECT_EQ(samples.at(R"(invar_http_requests_total{route="/v1/\"odd\\\n",method="other",status="405"})"), 1);
}

TEST(HttpCounters, page_of_an_engine_that_did_nothing_is_well_formed) {
  const Samples samples = parse_page(metrics_text({}, {}, ""));
  EXPECT_EQ(samples.at(R"(vllm:kv_cache_usage_perc{model_name=""})"), 0);
  EXPECT_EQ(samples.at(R"(vllm:e2e_request_latency_seconds_count{model_name=""})"), 0);
}

TEST(HttpCounters, served_page_counts_requests_by_route) {
  testing::TestServer server({}, some_stats);
  testing::RawClient client(server.port());
  for (const char* path : {"/items/1", "/items/2", "/a", "/b", "/c"}) {
    client.ask(std::string("GET ") + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
  }
  const testing::Answer answer = client.ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(answer.field("content-type").starts_with("text/plain; version=0.0.4"));
  const Samples samples = parse_page(answer.body);
  EXPECT_EQ(samples.at(R"(invar_http_requests_total{route="/items/{id}",method="GET",status="200"})"), 2);
  EXPECT_EQ(samples.at(R"(invar_http_requests_total{route="other",method="GET",status="404"})"), 3);
  EXPECT_EQ(samples.at("invar_http_connections"), 1);
  EXPECT_EQ(samples.at(R"(vllm:num_requests_waiting{model_name="test-model"})"), 5);
  EXPECT_GT(samples.at("invar_http_sent_bytes_total"), 0);
}

}  // namespace
}  // namespace invar::server
