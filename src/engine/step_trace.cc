#include "engine/step_trace.h"

#include <fmt/format.h>

namespace invar {

std::string step_json(const StepRecord& s) {
  return fmt::format(
      R"({{"step":{},"start_ns":{},"decode_rows":{},"prompt_rows":{},"recomputed_rows":{},"tokens":{},)"
      R"("prompt_tokens":{},"recomputed_tokens":{},"cut_prompts":{},"logit_rows":{},"preempted":{},)"
      R"("reused_tokens":{},"following":{},"running":{},"waiting":{},"pages_used":{},"pages_idle":{},)"
      R"("predicted_ns":{:.0f},"forward_ns":{},"sample_ns":{},"total_ns":{}}})",
      s.step, s.start_ns, s.decode_rows, s.prompt_rows, s.recomputed_rows, s.tokens, s.prompt_tokens,
      s.recomputed_tokens, s.cut_prompts, s.logit_rows, s.preempted, s.reused_tokens, s.following, s.running,
      s.waiting, s.pages_used, s.pages_idle, s.predicted_ns, s.forward_ns, s.sample_ns, s.total_ns);
}

}  // namespace invar
