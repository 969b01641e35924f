#pragma once
// ScoredText: the text that a quality tool scores models on, from the flags to windows of token ids. Main
// thread.

#include <string>
#include <vector>

#include "base/status.h"
#include "cli/flags.h"
#include "cli/quality/score_windows.h"
#include "models/model.h"

namespace invar {

struct ScoredText {
  std::string name;   // the file, "standard input" or "built-in text"
  int64_t bytes = 0;  // 0: given as ids
  int64_t tokens = 0;
  int32_t prefix_tokens = 0;
  WindowShape shape;
  std::vector<ScoreWindow> windows;
};

class ScoredTextFlags {
 public:
  void declare(Flags& flags);
  // What can be said before a model is loaded; a usage error.
  Status check() const;
  // That the text can be read, before work whose last part it is; of standard input nothing is said.
  Status check_text() const;
  // The text in the model's tokens. context: positions that a sequence may have.
  Result<ScoredText> read(const Model& model, int32_t context) const;
  bool from_ids() const { return !tokens_.empty(); }

 private:
  Result<std::string> given_text() const;             // of --file
  Result<std::vector<int32_t>> given_tokens() const;  // of --tokens

  std::string file_, tokens_;
  int32_t window_ = 0, stride_ = 0;
};

// Whether ids mean the same to both models: as many logits, and the same bytes for each id. The error names
// the first difference.
Status check_same_vocabulary(const Model& a, const Model& b, bool compare_tokens);

// An array of token ids as JSON. `what` names it in errors.
Result<std::vector<int32_t>> parse_token_ids(const std::string& json, const std::string& what);

}  // namespace invar
