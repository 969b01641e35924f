#include "cli/served_model.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <future>

#include "api/prefix_log.h"
#include "api/text_limits.h"
#include "backends/scripted/scripted_backend.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/quote.h"
#include "cli/environment.h"
#include "cli/prompts.h"
#include "cli/sampling_defaults.h"
#include "cli/text_setup.h"
#include "engine/step_trace.h"
#include "format/model_digest.h"
#include "format/packed_source.h"
#include "tensor/numerics_version.h"

namespace invar {
namespace {

// Buffered, so that a step seldom waits for the disk; the last lines come when the engine goes.
Status trace_steps(Engine& engine, const std::string& path) {
  const std::shared_ptr<std::FILE> file(std::fopen(path.c_str(), "w"), [](std::FILE* f) {
    if (f != nullptr) std::fclose(f);
  });
  if (file == nullptr) return io_error(fmt::format("--step-trace {}: {}", path, std::strerror(errno)));
  std::setvbuf(file.get(), nullptr, _IOLBF, BUFSIZ);  // whoever follows the file sees whole steps
  engine.set_trace([file](const StepRecord& step) { fmt::print(file.get(), "{}\n", step_json(step)); });
  return {};
}

// "SmolLM2-135M-Instruct.Q4_1" of ".../SmolLM2-135M-Instruct.Q4_1.gguf".
std::string name_of(const std::string& path) {
  std::filesystem::path p = std::filesystem::path(path).lexically_normal();
  if (!p.has_filename()) p = p.parent_path();
  const std::string name =
      p.extension() == ".gguf" || p.extension() == kPackedSuffix ? p.stem().string() : p.filename().string();
  return name.empty() ? "model" : name;
}

using DigestTask = std::future<Result<std::string>>;

// Reading a large model for the first time takes as long as the disk takes; the engine is set up meanwhile.
DigestTask start_digest(const ModelSource& source) {
  return std::async(std::launch::async, [&source] { return model_digest(source, environment().cache_dir); });
}

Result<std::string> finish_digest(DigestTask task) {
  if (task.wait_for(std::chrono::seconds(1)) != std::future_status::ready)
    fmt::print(stderr, "invar: reading the model once for its digest\n");
  return task.get();
}

}  // namespace

void ServedModel::take_sampling_defaults(const ModelSource& source) {
  SamplingDefaults defaults = sampling_defaults(source);
  for (const std::string& warning : defaults.warnings)
    log_warning("{}", printable_within(warning, 300));
  if (!defaults.taken.empty())
    log_info("the model's sampling, where requests say nothing: {}", defaults.taken);
  service_.sampling_defaults = std::move(defaults.params);
  sampling_taken_ = std::move(defaults.taken);
}

Status ServedModel::load_model(EngineFlags& flags, const std::string& chat_template, bool ignore_defaults) {
  ASSIGN_OR_RETURN(ModelWithText loaded, load_with_text(flags, chat_template));
  const std::shared_ptr<const Model>& model = loaded.model;
  DigestTask digest = start_digest(model->source());
  service_.text = std::make_shared<const text::TextModel>(std::move(loaded.text));
  service_.vocab = model->info().vocab;
  service_.fault = [model]() -> Status {
    if (!model->damaged()) return {};
    return {Code::kUnavailable,
            "the packed weights are damaged, as the server's log says; it has to be started again"};
  };
  if (!ignore_defaults) take_sampling_defaults(model->source());
  ASSIGN_OR_RETURN(engine_, flags.make_engine(model));
  backend_name_ = flags.backend_name();
  ASSIGN_OR_RETURN(service_.model_digest, finish_digest(std::move(digest)));
  return {};
}

Status ServedModel::load_script(EngineFlags& flags, const std::string& chat_template,
                                const std::string& script) {
  auto text = read_text(script);
  if (!text.ok()) return text.status().with_context("--scripted");
  ASSIGN_OR_RETURN(const std::string path, flags.model_path());
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelSource> source, ModelSource::open(path));
  ASSIGN_OR_RETURN(text::TextModel model, set_up_text(*source, {.chat_template = chat_template}));
  service_.vocab = model.tokenizer->vocab_size();
  service_.text = std::make_shared<const text::TextModel>(std::move(model));
  auto parsed = api::Script::parse(*text, service_.vocab);
  if (!parsed.ok()) return parsed.status().with_context(fmt::format("--scripted {}", script));
  script_ = std::move(*parsed);
  service_.script = script_.get();
  // Not the model's: nothing of its weights answers here.
  service_.model_digest = hex(sha256(*text));

  constexpr int32_t kScriptedContext = 1 << 17;
  const auto scripted = make_scripted_model(service_.vocab);
  EngineModel parts{&scripted->graph, &scripted->weights, kScriptedContext, 0, scripted};
  EngineOptions options = flags.options;
  if (options.memory_bytes == 0) options.memory_bytes = uint64_t{256} << 20;
  ASSIGN_OR_RETURN(engine_, Engine::create(std::move(parts), make_scripted_backend(), options));
  backend_name_ = "answers from " + script;
  return {};
}

Result<std::unique_ptr<ServedModel>> ServedModel::load(EngineFlags& flags,
                                                       const ServedModelOptions& options) {
  ASSIGN_OR_RETURN(const std::string chat_template, read_chat_template(options.chat_template));
  std::unique_ptr<ServedModel> served(new ServedModel);
  if (options.script.empty())
    RETURN_IF_ERROR(served->load_model(flags, chat_template, options.ignore_sampling_defaults));
  else
    RETURN_IF_ERROR(served->load_script(flags, chat_template, options.script));

  api::Service& service = served->service_;
  service.model_names = options.names;
  if (service.model_names.empty()) {
    ASSIGN_OR_RETURN(const std::string path, flags.model_path());
    // The path of a repository in the cache says nothing to anybody.
    const bool named = path != flags.given_model() && !flags.given_model().empty();
    service.model_names.push_back(named ? flags.given_model() : name_of(path));
  }
  service.accept_any_model = options.accept_any_model;
  service.created = std::time(nullptr);
  service.context = served->engine_->context();
  service.max_text_bytes = api::max_text_bytes(service.context);
  service.numerics = std::to_string(kNumericsVersion);
  service.kv = flags.options.kv;
  const std::string rope = flags.rope().text();
  service.fingerprint =
      "invar-" +
      hex(sha256(fmt::format("{}\n{}\n{}\n{}{}", service.model_digest, service.numerics, service.kv,
                             served->sampling_taken_, rope.empty() ? "" : "\n" + rope)))
          .substr(0, 16);
  service.prefix_log = std::make_shared<api::PrefixLog>();
  service.max_answers = served->engine_->max_answers();
  service.predicted_wait_s = [engine = served->engine_.get()] { return engine->predicted_wait_s(); };
  service.submit = [engine = served->engine_.get(), fault = service.fault](
                       GenerateRequest request,
                       int32_t choices) -> Result<std::vector<std::shared_ptr<Stream>>> {
    RETURN_IF_ERROR(fault());
    return engine->submit(std::move(request), choices);
  };
  if (!options.step_trace.empty()) RETURN_IF_ERROR(trace_steps(*served->engine_, options.step_trace));
  served->engine_->start();
  return served;
}

}  // namespace invar
