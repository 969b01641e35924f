// invar verify: has an answer made again from its request and the seed in its receipt, and says whether the
// bits agree.

#include <fmt/format.h>

#include "api/service.h"
#include "base/quote.h"
#include "cli/chat_session.h"
#include "cli/interrupt.h"
#include "cli/prompts.h"
#include "cli/receipt_check.h"
#include "cli/target_flags.h"
#include "cli/verbs.h"
#include "kv/codec.h"

namespace invar {
namespace {

constexpr int kExitDiffer = 1, kExitNotCompared = 2;
constexpr size_t kMaxErrorBytes = 600, kShownBytes = 100;

int not_compared(const Status& status) {
  const int code = fail(status);
  return code == kExitInterrupted ? code : kExitNotCompared;
}

int differ(const ReceiptDifference& d, const char* other = "replayed") {
  fmt::print("differ: {}\n  receipt   {}\n  {:<8}  {}\n", d.field, printable(d.ours, kShownBytes), other,
             printable(d.theirs, kShownBytes));
  return kExitDiffer;
}

struct Inputs {
  Receipt receipt;
  RepeatedRequest request;
};

Result<Inputs> read_inputs(const std::vector<std::string>& files, const std::string& endpoint) {
  Inputs inputs;
  ASSIGN_OR_RETURN(const std::string receipt_text, read_text(files[0]));
  auto receipt = read_receipt(receipt_text);
  if (!receipt.ok()) return receipt.status().with_context(files[0]);
  inputs.receipt = std::move(*receipt);
  ASSIGN_OR_RETURN(const std::string request_text, read_text(files[1]));
  auto request = repeated_request(request_text, endpoint, inputs.receipt);
  if (!request.ok()) return request.status().with_context(files[1]);
  inputs.request = std::move(*request);
  return inputs;
}

// A receipt's KV type is taken over, as far as this build has it.
void use_kv(const Receipt& receipt, EngineOptions& options) {
  if (find_kv_codec(receipt.kv) != nullptr) options.kv = receipt.kv;
}

int verify(const Inputs& inputs, ApiTarget& target) {
  const Receipt& receipt = inputs.receipt;
  // Known before anything is computed.
  if (const api::Service* service = target.service()) {
    const Receipt here{service->model_digest, service->numerics, service->kv, receipt.seed,
                       receipt.output_digest};
    if (const auto d = first_difference(receipt, here)) return differ(*d, "here");
  }
  if (inputs.request.other_seed) return differ({"seed", receipt.seed, *inputs.request.other_seed}, "request");
  ApiRequest request;
  request.target = inputs.request.target;
  request.body = inputs.request.body;
  const auto reply = target.send(request);
  if (!reply.ok()) return not_compared(reply.status());
  if (reply->status != 200)
    return not_compared(invalid_argument(
        fmt::format("the request is refused now, with status {}: {}", reply->status,
                    printable_within(api_error(reply->status, reply->body).message, kMaxErrorBytes))));
  const auto replayed = read_receipt(reply->body);
  if (!replayed.ok()) return not_compared(replayed.status().with_context("the answer to the replay"));
  if (const auto d = first_difference(receipt, *replayed)) return differ(*d);
  fmt::print("agree: output_digest {}\n  model {}, numerics {}, kv {}, seed {}\n",
             printable(receipt.output_digest, kShownBytes), printable(receipt.model_digest, kShownBytes),
             printable(receipt.numerics, kShownBytes), printable(receipt.kv, kShownBytes), receipt.seed);
  return 0;
}

}  // namespace

int verify_verb(Arguments args) {
  TargetFlags target_flags;
  std::vector<std::string> files;
  std::string endpoint;
  Flags flags("verify", "replay a request and compare the bits with its receipt");
  flags.example("invar verify answer.json request.json", "the body of an answer and of its request");
  flags.example("invar verify stream.txt request.json --model model.gguf", "the frames of a stream");
  flags.example("invar verify answer.json request.json --server http://127.0.0.1:8080",
                "whether a running server gives the same bits");
  flags.rest("RECEIPT REQUEST", &files,
             "RECEIPT: the \"invar\" object, the body that has it, or the frames of a stream; REQUEST: the "
             "JSON body that was sent");
  flags.section("Request");
  flags.choice("--endpoint", &endpoint, {"chat", "completions"},
               "what the request was sent to (default: as its fields say)");
  target_flags.model.accept_any_model = true;  // receipts name a model by its digest
  target_flags.declare(flags);
  flags.note(
      "The receipt's seed is used, and without --kv also its type of keys and values; streams are replayed "
      "as "
      "one body. Threads, instruction set and batch never matter.");
  flags.note(
      "Exit code: 0 the bits agree, 1 they differ, 2 not compared (wrong usage, no model, no server).");
  if (const auto end = parse_or_end(flags, args)) return *end;
  if (files.size() != 2) return fail_usage(invalid_argument("give two files: invar verify RECEIPT REQUEST"));
  if (files[0] == "-" && files[1] == "-")
    return fail_usage(invalid_argument("only one of the two files can be standard input"));
  if (const Status s = target_flags.finish(flags); !s.ok()) return fail_usage(s);

  Interrupt interrupt;
  const auto inputs = read_inputs(files, endpoint);
  if (!inputs.ok()) return not_compared(inputs.status());
  if (!flags.given("--kv")) use_kv(inputs->receipt, target_flags.engine.options);
  const auto target = target_flags.open();
  if (!target.ok()) return not_compared(target.status());
  interrupt.on_signal([&target] { (*target)->cancel(); });
  const int code = verify(*inputs, **target);
  interrupt.on_signal(nullptr);
  return code;
}

}  // namespace invar
