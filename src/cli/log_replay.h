#pragma once
// Sends logged requests again and compares what comes back with what was recorded. Free functions of the
// thread that owns the target.

#include <optional>
#include <string>

#include "base/status.h"
#include "cli/answer_trace.h"
#include "cli/api_target.h"
#include "server/request_log_reader.h"

namespace invar {

struct ReplayOutcome {
  // Why the two answers cannot be compared; "": they were.
  std::string skipped;
  std::optional<AnswerTrace::Difference> difference;  // frame 0: of the answer as a whole
  bool streamed = false;
  size_t frames = 0;  // recorded
  bool whole = true;  // false: what was recorded ended early and was compared up to there
};

// A request without a seed gets the one that its recorded receipt tells. Errors: of the target, not of the
// answer.
Result<ReplayOutcome> replay_request(const server::LoggedRequest& logged, ApiTarget& target);

// The name of the model in the recorded answers; "": none has one.
std::string recorded_model(const server::LoggedRequests& log);

}  // namespace invar
