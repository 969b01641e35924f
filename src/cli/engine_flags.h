#pragma once
// EngineFlags: the flags that every verb with a model shares (which model, threads, kernels, cache), and the
// model and engine they describe. Main thread.

#include <memory>
#include <string>
#include <vector>

#include "cli/chrome_trace.h"
#include "cli/flags.h"
#include "engine/engine.h"
#include "models/model.h"

namespace invar {

class EngineFlags {
 public:
  void declare(Flags& flags);
  // Only --model; for verbs that need no engine.
  void declare_model(Flags& flags);

  bool names_model() const { return !model_.empty(); }
  void set_model(std::string model) { model_ = std::move(model); }  // as --model
  // The model as an argument without a flag, which stands for --model; none is fine.
  Status take_model(const std::vector<std::string>& names);
  const std::string& given_model() const { return model_; }  // as it was written; "": the default
  // --model, else the default model. An error says which file to place where.
  Result<std::string> model_path() const;
  Result<std::shared_ptr<const ModelSource>> open_source() const;
  Result<std::shared_ptr<const Model>> load_model(std::shared_ptr<const ModelSource> source) const;
  Result<std::shared_ptr<const Model>> load_model() const;  // both
  int32_t threads() const { return threads_; }              // 0: every core
  RopeOverride rope() const;  // what load_model() does instead of what the file says

  CpuBackendOptions backend_options() const;
  EngineOptions options;  // from the flags; a verb may raise limits before make_engine
  Result<std::unique_ptr<Engine>> make_engine(std::shared_ptr<const Model> model) const;
  // "cpu/avx2, 2 threads"; valid after make_engine.
  const std::string& backend_name() const { return backend_name_; }

  bool verbose = false;

 private:
  std::string model_, isa_, trace_path_;
  int32_t threads_ = 0;
  RopeOverride rope_;
  float rope_base_ = 0;
  mutable std::string backend_name_;
  mutable std::shared_ptr<ChromeTrace> trace_;  // from make_engine on
};

}  // namespace invar
