// invar perplexity: how well a model predicts a text.

#include <fmt/format.h>

#include <boost/json.hpp>

#include "base/fp_environment.h"
#include "base/progress.h"
#include "base/quote.h"
#include "cli/engine_flags.h"
#include "cli/interrupt.h"
#include "cli/quality/comparison.h"
#include "cli/quality/scored_text.h"
#include "cli/verbs.h"

namespace invar {
namespace {

constexpr double kLn2 = 0x1.62e42fefa39efp-1;
constexpr size_t kShownBytes = 60;

struct Report {
  ScoredText text;
  double nll = 0, nll_error = 0;  // nats per token: mean and its standard error
  double perplexity = 0, perplexity_error = 0;
  double bits_per_token = 0, bits_per_byte = 0;
  int64_t scored = 0;
};

Report report_of(ScoredText text, std::span<const double> logprobs) {
  const FpEnvironment contract;
  Report r;
  r.text = std::move(text);
  r.scored = int64_t(logprobs.size());
  r.nll = -mean_of(logprobs);
  r.nll_error = standard_error(logprobs);
  r.perplexity = perplexity_of(logprobs);
  r.perplexity_error = r.perplexity * r.nll_error;  // to first order
  r.bits_per_token = r.nll / kLn2;
  if (r.text.bytes > 0) r.bits_per_byte = r.bits_per_token * double(r.scored) / double(r.text.bytes);
  return r;
}

void print_text(const EngineFlags& flags, const Model& model, const Report& r) {
  fmt::print("model       {} ({}, kv {})\n", printable_within(model.info().name, kShownBytes),
             model.info().family, flags.options.kv);
  fmt::print("text        {}: {}{} tokens, {} scored\n", printable_within(r.text.name, kShownBytes),
             r.text.bytes > 0 ? fmt::format("{} bytes, ", r.text.bytes) : "", r.text.tokens, r.scored);
  fmt::print("windows     {} of at most {} tokens ({} before the text), stride {}\n\n", r.text.windows.size(),
             r.text.shape.window, r.text.prefix_tokens, r.text.shape.stride);
  fmt::print("perplexity  {:.4f} +- {:.4f}\n", r.perplexity, r.perplexity_error);
  fmt::print("per token   {:.6f} nats, {:.6f} bits\n", r.nll, r.bits_per_token);
  if (r.text.bytes > 0) fmt::print("per byte    {:.6f} bits\n", r.bits_per_byte);
}

void print_json(const EngineFlags& flags, const Model& model, const Report& r) {
  boost::json::object o = {
      {"model",
       {{"name", printable(model.info().name)}, {"family", model.info().family}, {"kv", flags.options.kv}}},
      {"text", {{"name", printable(r.text.name)}, {"bytes", r.text.bytes}, {"tokens", r.text.tokens}}},
      {"windows",
       {{"count", r.text.windows.size()},
        {"window", r.text.shape.window},
        {"stride", r.text.shape.stride},
        {"prefix_tokens", r.text.prefix_tokens}}},
      {"scored_tokens", r.scored},
      {"perplexity", r.perplexity},
      {"perplexity_error", r.perplexity_error},
      {"nats_per_token", r.nll},
      {"bits_per_token", r.bits_per_token}};
  if (r.text.bytes > 0) o["bits_per_byte"] = r.bits_per_byte;
  fmt::print("{}\n", json_for_terminal(boost::json::serialize(o)));
}

Status perplexity(EngineFlags& flags, const ScoredTextFlags& text_flags, bool json, Interrupt& interrupt) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, flags.load_model());
  const int32_t context = flags.options.context > 0 ? flags.options.context : model->info().context_length;
  ASSIGN_OR_RETURN(ScoredText text, text_flags.read(*model, context));
  flags.options.context = text.shape.window;
  flags.options.prefix_cache_bytes = 0;  // no two windows begin alike
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, flags.make_engine(model));
  std::vector<double> logprobs;
  {
    Progress progress("scoring", scored_tokens(text.windows), Progress::Unit::kItems);
    std::atomic<bool> stop{false};
    interrupt.on_signal([&] { stop = true; });
    auto scores = score_windows_with(*engine, text.windows, {&stop, [&](int64_t n) { progress.advance(n); }});
    interrupt.on_signal(nullptr);
    if (!scores.ok()) return scores.status();
    logprobs = std::move(*scores);
  }
  RETURN_IF_ERROR(model->wait_verified());
  (json ? print_json : print_text)(flags, *model, report_of(std::move(text), logprobs));
  return {};
}

}  // namespace

int perplexity_verb(Arguments args) {
  EngineFlags engine;
  ScoredTextFlags text;
  std::vector<std::string> models;
  bool json = false;
  Flags flags("perplexity", "measure how well a model predicts a text");
  flags.example("invar perplexity model.gguf --file notes.txt", "e to the mean negative log-probability");
  flags.example("invar perplexity --file notes.txt --window 1024 --stride 1 --json",
                "with the longest contexts");
  flags.rest("MODEL", &models, "the model; without it --model or the default model");
  text.declare(flags);
  flags.section("Output");
  flags.on("--json", &json, "one JSON object on standard output");
  engine.declare(flags);
  flags.note(
      "Perplexities are comparable for one tokenizer, text, window and stride only; bits per byte also "
      "between "
      "tokenizers. What follows +- is the standard error of the mean over tokens.");
  if (const auto end = parse_or_end(flags, args)) return *end;
  if (const Status s = text.check(); !s.ok()) return fail_usage(s);
  if (models.size() > 1)
    return fail_usage(invalid_argument("perplexity takes one model; for two: invar kl A B"));
  if (!models.empty() && models[0].empty()) return fail_usage(invalid_argument("MODEL is empty"));
  if (!models.empty() && engine.names_model())
    return fail_usage(invalid_argument("give either MODEL or --model, not both"));
  if (!models.empty()) engine.set_model(models[0]);

  Interrupt interrupt;
  if (const Status s = perplexity(engine, text, json, interrupt); !s.ok()) return fail(s);
  return 0;
}

}  // namespace invar
