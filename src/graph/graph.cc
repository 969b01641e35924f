#include "graph/graph.h"

namespace invar {

const char* op_name(Op op) {
  switch (op) {
    case Op::kEmbed:
      return "embed";
    case Op::kRmsNorm:
      return "rms_norm";
    case Op::kLinear:
      return "linear";
    case Op::kRope:
      return "rope";
    case Op::kAttend:
      return "attend";
    case Op::kAdd:
      return "add";
    case Op::kGatedSilu:
      return "gated_silu";
    case Op::kSelectRows:
      return "select_rows";
  }
  return "?";
}

}  // namespace invar
