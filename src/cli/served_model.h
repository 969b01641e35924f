#pragma once
// ServedModel: a model with its engine and what the protocols know of it; or, with a script, answers from a
// file over the model's text alone. Built and destroyed by the main thread. The server goes first.

#include <memory>
#include <string>
#include <vector>

#include "api/script.h"
#include "api/service.h"
#include "cli/engine_flags.h"

namespace invar {

struct ServedModelOptions {
  std::vector<std::string> names;  // none: the file's or folder's name
  bool accept_any_model = false;
  std::string chat_template;              // path; "": the model's own
  std::string script;                     // path; "": none
  std::string step_trace;                 // path; "": none
  bool ignore_sampling_defaults = false;  // the model's own
};

class ServedModel {
 public:
  static Result<std::unique_ptr<ServedModel>> load(EngineFlags& flags, const ServedModelOptions& options);

  const api::Service& service() const { return service_; }
  const Engine& engine() const { return *engine_; }
  const std::string& backend_name() const { return backend_name_; }

 private:
  ServedModel() = default;
  Status load_model(EngineFlags& flags, const std::string& chat_template, bool ignore_defaults);
  void take_sampling_defaults(const ModelSource& source);
  Status load_script(EngineFlags& flags, const std::string& chat_template, const std::string& script);

  std::unique_ptr<const api::Script> script_;
  std::string backend_name_, sampling_taken_;
  api::Service service_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace invar
