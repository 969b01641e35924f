// invar serve: the model for many clients over HTTP. The first Ctrl-C or SIGTERM lets running answers end,
// the second stops at once.

#include <fmt/format.h>
#include <unistd.h>

#include "base/freed_memory.h"
#include "base/size_text.h"
#include "base/temporary_files.h"
#include "cli/interrupt.h"
#include "cli/served_model.h"
#include "cli/server_flags.h"
#include "cli/verbs.h"
#include "server/server.h"

namespace invar {
namespace {

std::vector<std::string> split_names(const std::string& list) {
  std::vector<std::string> names;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    names.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return names;
}

// Something to paste into another terminal.
std::string example_request(const server::ServerOptions& options, const std::string& where,
                            const std::string& model) {
  const bool on_socket = !options.unix_path.empty();
  return fmt::format(
      "try: curl {}/chat/completions {}{}-d '{{\"model\": \"{}\", \"messages\": [{{\"role\": \"user\", "
      "\"content\": \"Why is the sky blue?\"}}]}}'",
      on_socket ? fmt::format("--unix-socket {} http://localhost/v1", options.unix_path) : where,
      options.api_keys.empty() ? "" : "-H 'Authorization: Bearer KEY' ",
      "-H 'Content-Type: application/json' ", model);
}

Status serve(EngineFlags& engine, const ServedModelOptions& model, const server::ServerOptions& options,
             Interrupt& interrupt) {
  // Nothing was accepted yet: like a drain with nothing to wait for, whatever the model's loading is at.
  interrupt.on_signal([] {
    fmt::print(stderr, "invar: stopped before the model was loaded\n");
    exit_without_temporaries(0);
  });
  ASSIGN_OR_RETURN(server::Endpoint endpoint, server::Endpoint::open(options));
  ASSIGN_OR_RETURN(const std::unique_ptr<ServedModel> served, ServedModel::load(engine, model));
  server::Server server(std::move(endpoint), served->service(), api::find_route,
                        [&served] { return served->engine().stats(); });
  interrupt.on_signal([&] {
    if (const int32_t running = served->engine().stats().live; running > 0)
      fmt::print(stderr, "{}invar: {} {} ending; again = stop at once\n",
                 ::isatty(STDERR_FILENO) == 1 ? "\n" : "", running,
                 running == 1 ? "answer is" : "answers are");
    server.drain();
  });
  const std::string where =
      options.unix_path.empty()
          ? fmt::format("http://{}:{}/v1",
                        options.host.find(':') == std::string::npos ? options.host : "[" + options.host + "]",
                        server.port())
          : "unix socket " + options.unix_path;
  const std::string& name = served->service().model_names[0];
  const size_t keys = options.api_keys.size();
  if (engine.verbose)
    fmt::print(stderr, "kv {}, pool {} (reserved address space, not memory in use)\n", served->service().kv,
               size_text(served->engine().stats().kv_bytes_total));
  fmt::print(stderr, "invar: {} is served at {} ({}, context {}{})\n", name, where, served->backend_name(),
             served->service().context,
             keys == 0 ? "" : fmt::format(", {} {}", keys, keys == 1 ? "key" : "keys"));
  if (::isatty(STDERR_FILENO) == 1) fmt::print(stderr, "{}\n", example_request(options, where, name));
  server.run();
  interrupt.on_signal(nullptr);
  return {};
}

}  // namespace

int serve_verb(Arguments args) {
  EngineFlags engine;
  ServerFlags server;
  ServedModelOptions model;
  std::string names;
  std::vector<std::string> models;
  Flags flags("serve", "answer many clients over HTTP, as the OpenAI API does");
  flags.example("invar serve", "the default model at http://127.0.0.1:8080/v1");
  flags.example("invar serve --model model.gguf --host 0.0.0.0 --api-key keys.txt", "for others, with keys");
  flags.example("invar serve --unix /run/invar.sock --served-model-name small,gpt-4o-mini",
                "on a unix socket, under two names");
  server.declare(flags);
  flags.text("--step-trace", &model.step_trace, "FILE",
             "write what each step did and how long it took, one JSON object per line");
  flags.section("Scheduling");
  engine.options.max_queue = 1024;
  flags.integer("--max-queue", &engine.options.max_queue,
                "answers that may wait while others run; more are refused with 429 (default: 1024)", 0,
                1 << 20);
  engine.options.max_wait_s = 30;
  flags.integer("--max-wait", &engine.options.max_wait_s,
                "seconds; a request that would wait longer is refused with 429; 0 = no limit (default: 30)",
                0, 86400);
  engine.options.max_stall_ms = 200;
  flags.integer("--max-stall", &engine.options.max_stall_ms,
                "milliseconds that prompts may add to a step while answers run (default: 200)", 1, 60'000);
  flags.section("Model");
  flags.text("--served-model-name", &names, "A,B", "names that requests may give; replies say the first");
  flags.on("--accept-any-model", &model.accept_any_model,
           "whatever name a request gives, it means this model");
  flags.text("--chat-template", &model.chat_template, "FILE", "a Jinja template instead of the model's own");
  flags.on("--no-sampling-defaults", &model.ignore_sampling_defaults,
           "requests that say nothing get the API's defaults, not the model's own");
  flags.text("--scripted", &model.script, "FILE",
             "answer from this file instead of the model (docs/scripted.md); for tests of clients");
  flags.rest("MODEL", &models, "the model, as --model takes it");
  engine.declare(flags);
  flags.note(
      "Exit code: 0 after SIGTERM or Ctrl-C and the end of running answers, also while the model is loaded; "
      "130 after a "
      "second one; 1 failed, 2 wrong usage.");
  if (const auto end = parse_or_end(flags, args)) return *end;
  if (const Status s = engine.take_model(models); !s.ok()) return fail_usage(s);
  if (!names.empty()) {
    model.names = split_names(names);
    for (const std::string& name : model.names)
      if (name.empty())
        return fail_usage(invalid_argument("--served-model-name: an empty name; write them as A,B"));
  }
  auto options = server.finish();
  if (!options.ok()) return fail_usage(options.status());

  return_large_blocks();
  Interrupt interrupt;
  if (const Status s = serve(engine, model, *options, interrupt); !s.ok()) return fail(s);
  return 0;
}

}  // namespace invar
