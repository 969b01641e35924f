#include "api/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "api/prefix_log.h"
#include "base/check.h"

namespace invar::api {
namespace {

// How the answer's tokens become text: they continue a prompt, and control tokens stay hidden.
constexpr text::Detokenizer::Options kAnswerDecoding{.skip_control = true, .at_text_start = false};
constexpr int64_t kMaxPromptScores = 1'000'000;  // of one request; some 30 MB of JSON
constexpr text::Detokenizer::Options kPromptDecoding{.skip_control = false, .at_text_start = true};

std::vector<text::TokenScore> scores_of(const TokenEvent& event) {
  std::vector<text::TokenScore> scores;
  scores.reserve(event.alternatives.size());
  for (const TokenLogprob& a : event.alternatives)
    scores.push_back({a.token, a.logprob});
  return scores;
}

}  // namespace

Error context_exceeded(const Service& service, const std::string& prompt, const char* field) {
  return {400,
          fmt::format(
              "This model's maximum context length is {} tokens, but the prompt has {}. Shorten the prompt.",
              service.context, prompt),
          field, "context_length_exceeded"};
}

std::optional<Error> surely_too_long(const Service& service, size_t text_bytes, const char* field) {
  if (text_bytes <= size_t(service.context)) return {};
  const text::Tokenizer& tokenizer = *service.text->tokenizer;
  size_t longest = 1;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    longest = std::max(longest, tokenizer.token_bytes(id).size());
  const size_t tokens = text_bytes / longest;
  if (tokens <= size_t(service.context)) return {};
  return context_exceeded(service, fmt::format("at least {} tokens", tokens), field);
}

std::string random_id(const char* prefix) {
  std::random_device device;
  return fmt::format("{}{:08x}{:08x}{:08x}", prefix, device(), device(), device());
}

Generation::Started Generation::start(const Call& call, GenerationPlan plan) {
  std::unique_ptr<Generation> generation(new Generation(call, std::move(plan)));
  if (std::optional<Error> error = generation->too_many_answers()) return {nullptr, std::move(*error)};
  if (std::optional<Error> error = generation->fit_into_context()) return {nullptr, std::move(*error)};
  if (std::optional<Error> error = generation->too_many_scores()) return {nullptr, std::move(*error)};
  const Status status = generation->submit(call);
  if (!status.ok()) return {nullptr, error_of(status)};
  return {std::move(generation), {}};
}

Generation::~Generation() {
  cancel_all();
}

// More than can ever run and wait at once; trying again would not help.
std::optional<Error> Generation::too_many_answers() const {
  const int64_t answers = int64_t(plan_.prompts.size()) * plan_.choices;
  if (answers <= service_.max_answers) return {};
  return Error{400,
               fmt::format("{} prompts with {} answers each never fit into --max-batch and --max-queue ({} "
                           "together): send fewer prompts or lower n",
                           plan_.prompts.size(), plan_.choices, service_.max_answers),
               plan_.choices > 1 ? "n" : plan_.prompt_field, "too_many_answers"};
}

// The scores of prompts come at once and for every choice.
std::optional<Error> Generation::too_many_scores() const {
  if (!plan_.score_prompt) return {};
  int64_t tokens = 0;
  for (const PlannedPrompt& prompt : plan_.prompts)
    tokens += int64_t(prompt.ids.size());
  const int64_t scores = tokens * plan_.choices * (1 + std::max(plan_.fields.sampling.logprobs, 0));
  if (scores <= kMaxPromptScores) return {};
  return Error{
      400,
      fmt::format(
          "echo with logprobs would give {} scores ({} tokens of prompts, {} choices, logprobs {}); at "
          "most {} are allowed: lower n or logprobs, or send fewer prompts",
          scores, tokens, plan_.choices, plan_.fields.sampling.logprobs, kMaxPromptScores),
      "echo", "too_many_scores"};
}

// How many tokens each prompt may get. An error if a prompt leaves no room.
std::optional<Error> Generation::fit_into_context() {
  const int64_t context = service_.context;
  for (const PlannedPrompt& prompt : plan_.prompts) {
    const auto size = int64_t(prompt.ids.size());
    int64_t wanted = plan_.fields.max_tokens;
    if (wanted < 0) wanted = plan_.default_max_tokens > 0 ? plan_.default_max_tokens : context;
    const int64_t least = std::min<int64_t>(wanted, 1);
    if (size + least > context)
      return context_exceeded(service_,
                              fmt::format("{} tokens and the answer needs at least {}", size, least),
                              plan_.prompt_field);
    max_tokens_.push_back(std::min(wanted, context - size));
    if (plan_.fields.sampling.min_tokens > max_tokens_.back())
      return Error{400,
                   fmt::format("min_tokens: {} is more than the {} tokens that {} allows",
                               plan_.fields.sampling.min_tokens, max_tokens_.back(),
                               wanted <= context - size ? "max_tokens" : "the context"),
                   "min_tokens", ""};
  }
  return {};
}

Status Generation::submit(const Call& call) {
  const text::TextModel& model = *service_.text;
  const GenerationFields& fields = plan_.fields;
  ASSIGN_OR_RETURN(const auto stops, text::StopStrings::compile(fields.stop));
  for (size_t p = 0; p < plan_.prompts.size(); ++p) {
    PlannedPrompt& prompt = plan_.prompts[p];
    GenerateRequest request;
    request.prompt = prompt.ids;
    request.max_tokens = int32_t(max_tokens_[p]);
    request.sampling = fields.sampling;
    request.stop_ids = fields.stop_ids;
    request.cache_salt = fields.cache_salt;
    request.priority = fields.priority;
    request.tenant = tenant_;
    if (!fields.ignore_eos)
      request.stop_ids.insert(request.stop_ids.end(), model.stop_ids.begin(), model.stop_ids.end());
    if (stops != nullptr)
      request.guard =
          text::make_stop_guard(stops, model.tokenizer, kAnswerDecoding, fields.sampling.min_tokens);
    if (prompt.script != nullptr) {
      if (prompt.script->length)
        request.max_tokens = int32_t(std::min<int64_t>(request.max_tokens, prompt.script->token_count()));
      const bool ends_by_id = !fields.ignore_eos && !model.stop_ids.empty();
      request.guard =
          make_script_guard(prompt.script, ends_by_id ? model.stop_ids[0] : -1, std::move(request.guard));
    }
    if (plan_.score_prompt) request.prompt_logprobs = std::max(fields.sampling.logprobs, 0);
    request.notify = call.notify;
    ASSIGN_OR_RETURN(auto streams, service_.submit(std::move(request), plan_.choices));
    CHECK(streams.size() == size_t(plan_.choices));

    PromptState state;
    if (plan_.score_prompt) {
      const auto scores = [&](text::Detokenizer::Options decoding) {
        return std::make_unique<text::TextStream>(
            model.tokenizer,
            text::TextStream::Options{.stops = nullptr, .decoding = decoding, .logprobs = true});
      };
      state.prefix = scores(kAnswerDecoding);
      state.text = scores(kPromptDecoding);
      state.scores_left = prompt.ids.size();
    }
    prompts_.push_back(std::move(state));
    for (auto& stream : streams) {
      Choice choice;
      choice.index = int32_t(choices_.size());
      choice.prompt = int32_t(p);
      choice.stream = std::move(stream);
      choice.text = std::make_unique<text::TextStream>(
          model.tokenizer, text::TextStream::Options{.stops = stops,
                                                     .decoding = kAnswerDecoding,
                                                     .logprobs = plan_.entries,
                                                     .min_tokens = fields.sampling.min_tokens});
      choices_.push_back(std::move(choice));
    }
  }
  open_ = choices_.size();
  return {};
}

bool Generation::advance(std::string& out) {
  if (failure_.has_value() || open_ == 0) return true;
  for (Choice& choice : choices_) {
    if (choice.finish != FinishReason::kNone) continue;
    take(choice);
    render(choice, out);
    if (failure_.has_value()) break;
  }
  if (!failure_.has_value()) return open_ == 0;
  cancel_all();
  if (streaming() && !broken_) renderer_->error_frame(*failure_, out);
  return true;
}

// What the stream holds becomes choice.piece. The first choice of a prompt brings the prompt's scores, which
// the others wait for.
void Generation::take(Choice& choice) {
  if (prompts_[choice.prompt].scores_left > 0 && choice.index % plan_.choices != 0) return;
  const ScriptedAnswer* script = plan_.prompts[choice.prompt].script.get();
  while (choice.finish == FinishReason::kNone) {
    if (script != nullptr && script->fault_after >= 0 && int64_t(choice.ids.size()) >= script->fault_after) {
      broken_ = script->abrupt;
      return fail(script->fault);
    }
    std::optional<TokenEvent> event = choice.stream->try_next();
    if (!event.has_value()) return;
    take_facts(choice, *event);
    if (event->of_prompt) {
      take_score(choice, *event);
      continue;
    }
    if (event->token.has_value()) {
      choice.ids.push_back(*event->token);
      choice.logprob_sum += event->logprob;
      ++generated_;
      last_token_ns_ = event->published_ns;
      if (first_token_ns_ == 0) first_token_ns_ = event->published_ns;
      choice.text->push(*event->token, event->logprob, scores_of(*event), choice.piece);
    }
    if (event->finish == FinishReason::kError) return fail(error_of(event->error));
    if (event->finish == FinishReason::kCancelled)
      return fail({503, "the server ended this request before its answer was complete", "", "cancelled"});
    choice.finish = event->finish;
  }
  prompts_[choice.prompt].scores_left = 0;
  const bool length = choice.finish == FinishReason::kLength;
  choice.text->finish(length ? text::TextEnd::kLength : text::TextEnd::kStop, choice.piece);
  if (choice.text->end() == text::TextEnd::kStop) choice.finish = FinishReason::kStop;
}

// What the request met on its way, known from its first event on, so that one who leaves early is told of,
// too. Every choice tells what the prefix cache gave for its prompt; it counts once.
void Generation::take_facts(Choice& choice, const TokenEvent& event) {
  choice.preemptions = event.preemptions;
  PromptState& prompt = prompts_[choice.prompt];
  if (prompt.reused.has_value()) return;
  const PromptReuse& reuse = event.prompt;
  prompt.reused = reuse;
  prompt.queued_ns = event.queued_ns;
  if (service_.prefix_log == nullptr) return;
  const std::vector<int32_t>& ids = plan_.prompts[choice.prompt].ids;
  const bool inside = size_t(reuse.end_position) < ids.size();
  service_.prefix_log->add(
      {request_id_, tenant_, int32_t(ids.size()), reuse, inside ? ids[size_t(reuse.end_position)] : -1});
}

void Generation::take_score(Choice& choice, const TokenEvent& event) {
  PromptState& prompt = prompts_[choice.prompt];
  if (prompt.scores_left == 0 || !event.token.has_value()) return;
  const std::vector<int32_t>& ids = plan_.prompts[choice.prompt].ids;
  const bool of_prefix = ids.size() - prompt.scores_left < plan_.prompts[choice.prompt].prefix;
  text::TextPiece piece;
  (of_prefix ? prompt.prefix : prompt.text)->push(*event.token, event.logprob, scores_of(event), piece);
  if (--prompt.scores_left == 0) prompt.text->finish(text::TextEnd::kLength, piece);
  if (!piece.empty()) renderer_->prompt_piece(choice.prompt, piece);
}

void Generation::render(Choice& choice, std::string& out) {
  const bool ended = choice.finish != FinishReason::kNone;
  if (!choice.piece.empty() || ended) {
    if (!choice.started) {
      choice.started = true;
      renderer_->start(choice, out);
    }
  }
  if (!choice.piece.empty()) {
    renderer_->piece(choice, out);
    choice.piece.clear();
  }
  if (ended) renderer_->end(choice, --open_ == 0, out);
}

void Generation::fail(Error error) {
  if (!failure_.has_value()) failure_ = std::move(error);
}

void Generation::cancel_all() {
  for (const Choice& choice : choices_)
    if (choice.finish == FinishReason::kNone) choice.stream->cancel();
}

Response Generation::response() {
  return failure_.has_value() ? renderer_->error_body(*failure_) : renderer_->body();
}

std::string Generation::error_frame(const Error& why) {
  std::string out;
  renderer_->error_frame(why, out);
  return out;
}

Usage Generation::usage() const {
  Usage usage;
  for (const PlannedPrompt& prompt : plan_.prompts)
    usage.prompt_tokens += int64_t(prompt.ids.size());
  for (const PromptState& prompt : prompts_)
    if (prompt.reused.has_value()) usage.cached_tokens += prompt.reused->cached_tokens;
  usage.completion_tokens = generated_;
  return usage;
}

ExchangeFacts Generation::facts() const {
  const Usage used = usage();
  ExchangeFacts facts;
  facts.choices = int32_t(choices_.size());
  facts.prompt_tokens = used.prompt_tokens;
  facts.cached_tokens = used.cached_tokens;
  if (!prompts_.empty() && prompts_[0].reused.has_value()) {
    facts.prefix_end = prefix_end_name(prompts_[0].reused->lookup.end);
    facts.prefix_end_position = prompts_[0].reused->end_position;
    facts.queued_ns = prompts_[0].queued_ns;
  }
  for (const Choice& choice : choices_)
    facts.preemptions += choice.preemptions;
  facts.priority = plan_.fields.priority;
  facts.generated_tokens = used.completion_tokens;
  facts.first_token_ns = first_token_ns_;
  facts.last_token_ns = last_token_ns_;
  bool stop = false, length = false;
  for (const Choice& choice : choices_) {
    stop = stop || choice.finish == FinishReason::kStop;
    length = length || choice.finish == FinishReason::kLength;
  }
  facts.finish = failure_.has_value() ? "error"
                 : stop && length     ? "stop,length"
                 : stop               ? "stop"
                 : length             ? "length"
                                      : "";
  return facts;
}

}  // namespace invar::api
