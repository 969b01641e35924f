#pragma once
// Environment: everything Invar takes from environment variables. Read once, by main(); nothing else in the
// program reads them.

#include <string>

namespace invar {

struct Environment {
  std::string isa;        // INVAR_ISA: instruction set of the kernels; "" = the best of this CPU
  std::string cache_dir;  // $XDG_CACHE_HOME/invar, else $HOME/.cache/invar; "" when neither is set
  // The hub's, as its other tools read them.
  std::string hub_cache;       // HF_HUB_CACHE, else $HF_HOME/hub, else huggingface/hub beside cache_dir
  std::string hub_endpoint;    // HF_ENDPOINT, else https://huggingface.co
  std::string hub_token;       // HF_TOKEN; "" = none given
  std::string hub_token_file;  // HF_TOKEN_PATH, else $HF_HOME/token: where a login leaves it
  bool hub_offline = false;    // HF_HUB_OFFLINE
};

const Environment& environment();

}  // namespace invar
