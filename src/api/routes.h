#pragma once
// The handlers of each protocol, as protocols.cc lists them. One file per noun.

#include "api/protocol.h"

namespace invar::api {

Outcome post_chat_completions(const Call& call);  // openai_chat.cc
Outcome post_completions(const Call& call);       // openai_completions.cc
Outcome get_debug_prefix(const Call& call);       // debug_prefix.cc
Outcome get_models(const Call& call);             // models.cc
Outcome get_model(const Call& call);
Outcome post_tokenize(const Call& call);  // tokenize.cc
Outcome post_detokenize(const Call& call);
Outcome post_apply_template(const Call& call);

}  // namespace invar::api
