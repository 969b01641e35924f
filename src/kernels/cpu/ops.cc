// The element-wise and row kernels of one instruction set; compiled once per set (isa_list.cmake).

#include "kernels/cpu/ops-inl.h"

#include "kernels/cpu/noise-inl.h"
#include "kernels/kernel_table.h"

namespace invar::INVAR_ISA {

void fill_ops(KernelTable& t);  // declared per set by kernel_table.cc
void fill_ops(KernelTable& t) {
  t.rms_norm = rms_norm;
  t.add = add_rows;
  t.layer_norm = layer_norm;
  t.gated_silu = gated_silu;
  t.gated_gelu = gated_gelu;
  t.gated_clamped = gated_clamped;
  t.scale = scale_row;
  t.multiply = multiply_row;
  t.add_scaled = add_scaled_row;
  t.match_rms = match_rms;
  t.sparsify = sparsify;
  t.softcap = softcap_row;
  t.unary[int(Unary::kExp)] = map<exp>;
  t.unary[int(Unary::kSigmoid)] = map<sigmoid>;
  t.unary[int(Unary::kSilu)] = map<silu>;
  t.unary[int(Unary::kTanh)] = map<tanh>;
  t.unary[int(Unary::kSoftplus)] = map<softplus>;
  t.unary[int(Unary::kGeluTanh)] = map<gelu_tanh>;
  t.unary[int(Unary::kErf)] = map<erf>;
  t.unary[int(Unary::kGeluErf)] = map<gelu_erf>;
  t.rows = {all_finite, argmax, exp_sum, softmax, contenders, divide, sum, square_sum, weight_sums};
  t.rope_table = rope_table;
  t.rope = rope;
  t.rope_adjacent = rope_adjacent;
}

}  // namespace invar::INVAR_ISA
