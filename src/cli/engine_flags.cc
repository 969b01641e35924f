#include "cli/engine_flags.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/usable_cores.h"
#include "cli/environment.h"
#include "cli/model_names.h"
#include "kernels/kernel_table.h"
#include "kv/codec.h"

namespace invar {

void EngineFlags::declare_model(Flags& flags) {
  flags.section("Model");
  flags.text("-m,--model", &model_, "FILE",
             "a .gguf or .packed file, a folder with config.json and model.safetensors, a short name such as "
             "gemma3-270m, "
             "or a repository that was pulled, owner/name (default: " +
                 std::string(model_aliases()[0].name) + ")");
}

void EngineFlags::declare(Flags& flags) {
  declare_model(flags);
  flags.section("Engine");
  flags.integer("--threads", &threads_, "worker threads (default: every core this process may use)", 1, 1024);
  flags.parsed("--cpus", "LIST", "run on these CPUs only, such as 0-3,8 (default: all this process may use)",
               [](const std::string& list) { return bind_to_cores(list); });
  std::vector<std::string> sets, codecs;
  for (const KernelTable* t : kernel_tables())
    sets.emplace_back(t->name);
  for (const KvCodec& c : kv_codecs())
    codecs.emplace_back(c.name);
  flags.choice("--isa", &isa_, sets,
               "instruction set; all give the same bits (default: the best; also INVAR_ISA)");
  flags.choice("--kv", &options.kv, codecs, "type of cached keys and values (default: f16)");
  flags.bytes("--memory", &options.memory_bytes,
              "bound of the key-value pool, such as 2GiB (default: half of the free memory)");
  flags.bytes_or("--prefix-cache", &options.prefix_cache_bytes, "off",
                 "KV pages kept for prompts that begin alike (default: what requests leave of --memory)");
  flags.integer("--ctx,--context", &options.context,
                "positions per sequence (default: what the model was trained for)", 1);
  flags.parsed("--rope-scaling", "none|linear|yarn[:FACTOR]",
               "stretch the positions, for a --ctx beyond what the model was trained for (default: as the "
               "file says)",
               [this](const std::string& v) { return parse_rope_rule(v, &rope_); });
  flags.number("--rope-base", &rope_base_, "base of the rotary positions (default: as the file says)", 1.001,
               1e30);
  flags.integer("--prefill-chunk", &options.prefill_chunk,
                "prompt tokens of one sequence in a step; never changes answers (default: all that the step "
                "has room for)",
                1);
  flags.integer("--max-batch", &options.max_batch, "sequences per step; further ones wait (default: 64)", 1,
                kMaxBatch);
  flags.text("--trace", &trace_path_, "FILE",
             "write where the time of each step goes, for chrome://tracing or ui.perfetto.dev");
  flags.on("-v,--verbose", &verbose, "say what is loaded, which kernels and which seed are used");
}

Status EngineFlags::take_model(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  if (names.size() > 1 || names_model())
    return invalid_argument("one model at a time: give MODEL or --model, once");
  if (names[0].empty()) return invalid_argument("MODEL is empty; leave it out for the default model");
  model_ = names[0];
  return {};
}

Result<std::string> EngineFlags::model_path() const {
  const HubCache cache(environment().hub_cache);
  if (!model_.empty()) {
    auto found = find_model(model_, cache);
    return found.ok() ? found : found.status().with_context("--model");
  }
  const ModelAlias& standard = model_aliases()[0];
  const std::string path = alias_path(standard);
  if (path.empty())
    return not_found("no model: give --model FILE, or set HOME so that the default model has a place");
  if (auto found = find_model(standard.name, cache); found.ok()) return found;
  return not_found(
      fmt::format("no model: give --model FILE, start through the script ./invar (it fetches the default "
                  "model), run invar "
                  "pull {}, or place {} at {}",
                  standard.name, standard.file, path));
}

Result<std::shared_ptr<const ModelSource>> EngineFlags::open_source() const {
  set_log_level(verbose ? LogLevel::kInfo : LogLevel::kWarning);
  ASSIGN_OR_RETURN(const std::string path, model_path());
  ASSIGN_OR_RETURN(std::unique_ptr<ModelSource> source, ModelSource::open(path));
  return std::shared_ptr<const ModelSource>(std::move(source));
}

Result<std::shared_ptr<const Model>> EngineFlags::load_model() const {
  ASSIGN_OR_RETURN(auto source, open_source());
  return load_model(std::move(source));
}

Result<std::shared_ptr<const Model>> EngineFlags::load_model(
    std::shared_ptr<const ModelSource> source) const {
  LoadOptions load;
  load.cache_dir = environment().cache_dir;
  load.threads = threads_;
  load.rope = rope();
  return Model::load(std::move(source), load);
}

RopeOverride EngineFlags::rope() const {
  RopeOverride rope = rope_;
  rope.base = double(rope_base_);
  rope.context = options.context;
  return rope;
}

CpuBackendOptions EngineFlags::backend_options() const {
  CpuBackendOptions o;
  o.threads = threads_;
  o.isa = isa_.empty() ? environment().isa : isa_;
  return o;
}

Result<std::unique_ptr<Engine>> EngineFlags::make_engine(std::shared_ptr<const Model> model) const {
  auto backend = make_cpu_backend(backend_options());
  if (!backend.ok()) {
    const bool from_environment = isa_.empty() && !environment().isa.empty();
    return from_environment ? backend.status().with_context("INVAR_ISA=" + environment().isa)
                            : backend.status();
  }
  backend_name_ = (*backend)->name();
  if (const size_t cpus = usable_cores().affinity.size(); size_t(threads_) > cpus)
    log_warning("--threads {}: this process may use {} {}; more threads give the same answers, slower",
                threads_, cpus, cpus == 1 ? "CPU" : "CPUs");
  if (!trace_path_.empty() && trace_sink() == nullptr) {  // one file, however many engines
    ASSIGN_OR_RETURN(trace_, ChromeTrace::create(trace_path_));
  }
  return Engine::create(std::move(model), std::move(*backend), options);
}

}  // namespace invar
