// invar logits: every position's raw logits of a token sequence, as a NumPy file.

#include <optional>

#include "cli/engine_flags.h"
#include "cli/interrupt.h"
#include "cli/npy_writer.h"
#include "cli/prompts.h"
#include "cli/quality/scored_text.h"
#include "cli/verbs.h"

namespace invar {
namespace {

Result<std::vector<int32_t>> read_ids(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_text(path));
  return parse_token_ids(text, "--tokens " + path);
}

Status write_logits(const EngineFlags& engine_flags, const std::string& tokens, const std::string& out,
                    Interrupt& interrupt) {
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, read_ids(tokens));
  ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, engine_flags.load_model());
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, engine_flags.make_engine(model));
  ASSIGN_OR_RETURN(NpyWriter writer, NpyWriter::create(out, int64_t(ids.size()), model->info().vocab));

  Status written;
  GenerateRequest request;
  request.prompt = std::move(ids);
  request.all_prompt_logits = true;
  request.on_logits = [&](int32_t, std::span<const float> row) {
    if (written.ok()) written = writer.append(row);
  };
  ASSIGN_OR_RETURN(const std::shared_ptr<Stream> stream, engine->submit(std::move(request)));
  interrupt.on_signal([&] { stream->cancel(); });  // the unfinished file is then removed
  while (engine->step() && written.ok()) {
  }
  interrupt.on_signal(nullptr);
  if (interrupt.seen()) return {Code::kCancelled, "interrupted"};
  RETURN_IF_ERROR(written);
  while (const std::optional<TokenEvent> event = stream->try_next()) {
    if (event->finish == FinishReason::kError) return event->error;
  }
  RETURN_IF_ERROR(model->wait_verified());  // before the file appears
  return writer.finish();
}

}  // namespace

int logits_verb(Arguments args) {
  EngineFlags engine;
  std::string tokens, out;
  Flags flags("logits", "write the logits of a token sequence to a file");
  flags.example("invar logits --model model.gguf --tokens ids.json --out logits.npy",
                "float32 [tokens, vocabulary]; row i predicts token i + 1");
  flags.example("invar tokenize --ids 'Hello there' | invar logits --tokens - --kv f32 --out logits.npy",
                "with ids from the tokenizer and an exact cache");
  flags.section("Input and output");
  flags.text("--tokens", &tokens, "FILE", "a JSON array of token ids; - is standard input");
  flags.text("-o,--out", &out, "FILE", "the NumPy file to write; appears when it is complete");
  engine.declare(flags);
  if (const auto end = parse_or_end(flags, args)) return *end;
  if (tokens.empty())
    return fail_usage(invalid_argument("--tokens FILE is missing: a JSON array of token ids"));
  if (out.empty()) return fail_usage(invalid_argument("--out FILE is missing: where the logits go"));
  Interrupt interrupt;
  if (const Status s = write_logits(engine, tokens, out, interrupt); !s.ok()) return fail(s);
  return 0;
}

}  // namespace invar
