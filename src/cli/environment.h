#pragma once
// Environment: everything Invar takes from environment variables. Read once, by main(); nothing else in the
// program reads them.

#include <string>

namespace invar {

struct Environment {
  std::string isa;        // INVAR_ISA: instruction set of the kernels; "" = the best of this CPU
  std::string cache_dir;  // $XDG_CACHE_HOME/invar, else $HOME/.cache/invar; "" when neither is set
};

const Environment& environment();

// Where the start script puts the default model; "" without a cache folder.
std::string default_model_path();
inline constexpr const char kDefaultModelName[] = "SmolLM2-135M-Instruct.Q4_1.gguf";

}  // namespace invar
