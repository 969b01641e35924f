// invar kl: how far the next-token distributions of two models are apart on a text. The two may be the same
// file under two settings.

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/quote.h"
#include "cli/engine_flags.h"
#include "cli/quality/model_comparison.h"
#include "cli/verbs.h"
#include "kv/codec.h"

namespace invar {
namespace {

constexpr size_t kShownBytes = 60;

boost::json::object side_json(const ComparedModel& side, double perplexity) {
  return {{"name", printable(side.model->info().name)},
          {"path", printable(side.model->source().path(), 1000)},
          {"family", side.model->info().family},
          {"kv", side.flags.options.kv},
          {"perplexity", perplexity}};
}

void print_json(const ComparedModel& a, const ComparedModel& b, const ScoredText& text, const Comparison& c) {
  const boost::json::object o = {
      {"a", side_json(a, c.perplexity_a)},
      {"b", side_json(b, c.perplexity_b)},
      {"text", {{"name", printable(text.name)}, {"bytes", text.bytes}, {"tokens", text.tokens}}},
      {"windows",
       {{"count", text.windows.size()},
        {"window", text.shape.window},
        {"stride", text.shape.stride},
        {"prefix_tokens", text.prefix_tokens}}},
      {"scored_tokens", c.tokens},
      {"kl",
       {{"mean", c.mean},
        {"mean_error", c.mean_error},
        {"median", c.median},
        {"p99", c.p99},
        {"max", c.max}}},
      {"top1_agreement", c.top1_agreement}};
  fmt::print("{}\n", json_for_terminal(boost::json::serialize(o)));
}

void print_text(const ComparedModel& a, const ComparedModel& b, const ScoredText& text, const Comparison& c) {
  for (const auto& [name, side] : {std::pair("A", &a), std::pair("B", &b)})
    fmt::print("{}           {} ({}, kv {})\n", name,
               printable_within(side->model->source().path(), 2 * kShownBytes), side->model->info().family,
               side->flags.options.kv);
  fmt::print("text        {}: {}{} tokens, {} scored\n", printable_within(text.name, kShownBytes),
             text.bytes > 0 ? fmt::format("{} bytes, ", text.bytes) : "", text.tokens, c.tokens);
  fmt::print("windows     {} of at most {} tokens ({} before the text), stride {}\n\n", text.windows.size(),
             text.shape.window, text.prefix_tokens, text.shape.stride);
  fmt::print("{}", figures_text(c));
  fmt::print("perplexity  A {:.4f}, B {:.4f}\n", c.perplexity_a, c.perplexity_b);
}

Status kl(ComparedModel& a, ComparedModel& b, const ScoredTextFlags& text, bool json, Interrupt& interrupt) {
  ASSIGN_OR_RETURN(const ModelComparison c, compare_models(a, b, text, interrupt));
  (json ? print_json : print_text)(a, b, c.text, c.figures);
  return {};
}

}  // namespace

int kl_verb(Arguments args) {
  ComparedModel a, b;
  ScoredTextFlags text;
  std::vector<std::string> models;
  std::string kv_a, kv_b;
  bool json = false;
  Flags flags("kl", "measure how far two models, formats or settings are apart on a text");
  flags.example("invar kl model-f16.gguf model-q4.gguf --file notes.txt",
                "what quantizing the weights costs");
  flags.example("invar kl model.gguf --kv-a f32 --kv-b bf16", "what a smaller cache costs");
  flags.rest("A B", &models, "A counts as the truth; without B the same model under other settings");
  text.declare(flags);
  flags.section("Settings of one side");
  std::vector<std::string> codecs;
  for (const KvCodec& c : kv_codecs())
    codecs.emplace_back(c.name);
  flags.choice("--kv-a", &kv_a, codecs, "type of cached keys and values of A (default: --kv)");
  flags.choice("--kv-b", &kv_b, codecs, "the same of B");
  flags.section("Output");
  flags.on("--json", &json, "one JSON object on standard output");
  a.flags.declare(flags);
  flags.note(
      "KL(A||B) is the sum of p (ln p - ln q) over the vocabulary at each scored token, in nats; p99 is the "
      "value "
      "that 99 of 100 tokens do not exceed. Threads and instruction sets never change a digit.");
  if (const auto end = parse_or_end(flags, args)) return *end;
  if (const Status s = text.check(); !s.ok()) return fail_usage(s);
  if (models.size() > 2) return fail_usage(invalid_argument("kl compares two models: invar kl A B"));
  if (std::find(models.begin(), models.end(), "") != models.end())
    return fail_usage(invalid_argument("the name of a model is empty: invar kl A B"));
  if (!models.empty() && a.flags.names_model())
    return fail_usage(invalid_argument("give the models either as A B or by --model, not both"));
  if (!models.empty()) a.flags.set_model(models[0]);
  b.flags = a.flags;
  if (models.size() == 2) b.flags.set_model(models[1]);
  if (!kv_a.empty()) a.flags.options.kv = kv_a;
  if (!kv_b.empty()) b.flags.options.kv = kv_b;
  if (models.size() < 2 && a.flags.options.kv == b.flags.options.kv)
    return fail_usage(invalid_argument(
        "there is nothing to compare: give two models, A B, or two settings of one, such as --kv-b f32"));

  Interrupt interrupt;
  if (const Status s = kl(a, b, text, json, interrupt); !s.ok()) return fail(s);
  return 0;
}

}  // namespace invar
