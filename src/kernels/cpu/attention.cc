// KV writes and attention of one instruction set, for every codec; compiled once per set (isa_list.cmake).

#include "kernels/cpu/attention-inl.h"

namespace invar::INVAR_ISA {

void fill_attention(KernelTable& t);  // declared per set by kernel_table.cc
void fill_attention(KernelTable& t) {
  fill_codec<RawCodec<RawF16>>(t);
  fill_codec<RawCodec<RawBF16>>(t);
  fill_codec<RawCodec<RawF32>>(t);
  t.attend_scratch = attend_scratch;
  t.attend_combine = attend_combine;
}

}  // namespace invar::INVAR_ISA
