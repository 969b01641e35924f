#include "graph/graph.h"

namespace invar {

const char* op_name(Op op) {
  switch (op) {
    case Op::kEmbed:
      return "embed";
    case Op::kRmsNorm:
      return "rms_norm";
    case Op::kLayerNorm:
      return "layer_norm";
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
    case Op::kGatedGelu:
      return "gated_gelu";
    case Op::kGelu:
      return "gelu";
    case Op::kTanh:
      return "tanh";
    case Op::kScale:
      return "scale";
    case Op::kMultiply:
      return "multiply";
    case Op::kSoftcap:
      return "softcap";
    case Op::kAddScaled:
      return "add_scaled";
    case Op::kMatchRms:
      return "match_rms";
    case Op::kSparsify:
      return "sparsify";
    case Op::kColumns:
      return "columns";
    case Op::kSelectRows:
      return "select_rows";
    case Op::kExperts:
      return "experts";
  }
  return "?";
}

bool Graph::rotates_long(int64_t prompt_tokens) const {
  for (const Rope& rope : ropes)
    if (!rope.long_inv_freq.empty() && prompt_tokens > rope.short_context) return true;
  return false;
}

}  // namespace invar
