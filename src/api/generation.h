#pragma once
// Generation: the part of an exchange that all protocols share. Starts the streams of a request, turns their
// events into pieces of text, counts, and leaves it to a Renderer to write them down. Made on a worker, then
// owned by the connection's thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/protocol.h"
#include "api/sampling_fields.h"
#include "api/script.h"
#include "api/service.h"
#include "text/text_stream.h"

namespace invar::api {

struct PlannedPrompt {
  std::vector<int32_t> ids;
  size_t prefix = 0;  // ids at the front that the tokenizer added; no text of the request
  std::shared_ptr<const ScriptedAnswer> script;  // of a scripted server, else null
};

// A request as the engine will get it.
struct GenerationPlan {
  std::vector<PlannedPrompt> prompts;
  const char* prompt_field = "messages";  // the field that a prompt too long is blamed on
  GenerationFields fields;
  int32_t choices = 1;             // of each prompt: n, or best_of
  int64_t default_max_tokens = 0;  // when the request names none; 0: what the context leaves
  bool entries = false;            // pieces carry log-probabilities
  bool score_prompt = false;       // ... and the prompt's tokens get some, too
};

struct Choice {
  int32_t index = 0;   // in the reply, prompts * choices
  int32_t prompt = 0;  // in the plan
  std::shared_ptr<Stream> stream;
  std::unique_ptr<text::TextStream> text;
  std::vector<int32_t> ids;  // generated
  double logprob_sum = 0;
  FinishReason finish = FinishReason::kNone;
  bool started = false;
  int32_t preemptions = 0;
  text::TextPiece piece;  // what is new

  const char* finish_reason() const { return finish == FinishReason::kLength ? "length" : "stop"; }
};

struct Usage {
  int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
};

// Writes down what happens, in this order for each choice: start, pieces, end. `out` takes the frames of a
// stream; a renderer of one body keeps what it needs itself.
class Renderer {
 public:
  virtual ~Renderer() = default;
  // Scores of a prompt's tokens; the pieces of one prompt come in order and before its choices.
  virtual void prompt_piece(int32_t prompt, const text::TextPiece& piece) = 0;
  virtual void start(const Choice& choice, std::string& out) = 0;
  virtual void piece(const Choice& choice, std::string& out) = 0;  // choice.piece is not empty
  // `last`: all others have ended.
  virtual void end(const Choice& choice, bool last, std::string& out) = 0;
  virtual Response body() = 0;
  virtual void error_frame(const Error& error, std::string& out) = 0;
  virtual Response error_body(const Error& error) = 0;
};

class Generation final : public Exchange {
 public:
  // Submits. An error is for the client.
  struct Started {
    std::unique_ptr<Generation> generation;  // null: error
    Error error;
  };
  static Started start(const Call& call, GenerationPlan plan);
  ~Generation() override;

  void set_renderer(std::unique_ptr<Renderer> renderer) { renderer_ = std::move(renderer); }
  const GenerationPlan& plan() const { return plan_; }
  const std::vector<Choice>& choices() const { return choices_; }
  const Service& service() const { return service_; }
  Usage usage() const;

  bool streaming() const override { return plan_.fields.stream; }
  bool advance(std::string& out) override;
  Response response() override;
  std::string error_frame(const Error& why) override;
  ExchangeFacts facts() const override;
  bool broken() const override { return broken_; }

 private:
  struct PromptState {
    std::unique_ptr<text::TextStream> prefix;  // takes the tokens that are no text; null: no scores wanted
    std::unique_ptr<text::TextStream> text;    // the others
    size_t scores_left = 0;
    std::optional<PromptReuse> reused;  // known with its first event
    int64_t queued_ns = -1;
  };

  Generation(const Call& call, GenerationPlan plan)
      : service_(call.service),
        plan_(std::move(plan)),
        request_id_(call.request.id),
        tenant_(call.request.tenant) {}
  Status submit(const Call& call);
  std::optional<Error> fit_into_context();
  std::optional<Error> too_many_answers() const;
  std::optional<Error> too_many_scores() const;
  void take(Choice& choice);
  void take_facts(Choice& choice, const TokenEvent& event);
  void take_score(Choice& choice, const TokenEvent& event);
  void render(Choice& choice, std::string& out);
  void fail(Error error);
  void cancel_all();

  const Service& service_;
  GenerationPlan plan_;
  const std::string request_id_;
  const uint64_t tenant_;
  std::vector<Choice> choices_;
  std::vector<PromptState> prompts_;
  std::unique_ptr<Renderer> renderer_;
  std::optional<Error> failure_;
  bool broken_ = false;
  size_t open_ = 0;                  // choices that have not ended
  std::vector<int64_t> max_tokens_;  // of each prompt
  int64_t generated_ = 0, first_token_ns_ = 0, last_token_ns_ = 0;
};

// `prompt` says what it has: "500 tokens".
Error context_exceeded(const Service& service, const std::string& prompt, const char* field);

// A text that no tokenizing can make short enough for the context, so that nobody waits for it; null: it may
// fit.
std::optional<Error> surely_too_long(const Service& service, size_t text_bytes, const char* field);

// "chatcmpl-" and 24 random hex digits.
std::string random_id(const char* prefix);

}  // namespace invar::api
