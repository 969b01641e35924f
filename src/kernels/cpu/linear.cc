// The linear kernels of one instruction set; compiled once per set (isa_list.cmake).

#include "kernels/kernel_table.h"
#if __has_include("kernels/cpu/linear-inl.h")
#include "kernels/cpu/linear-inl.h"
#define HAVE_LINEAR 1
#endif

namespace invar::INVAR_ISA {

void fill_linear(KernelTable& t);  // declared per set by kernel_table.cc
void fill_linear(KernelTable& t) {
#ifdef HAVE_LINEAR
  t.quantize_row = quantize_row;
  t.linear = linear;
  t.unpack_row = unpack_row;
#else
  (void)t;
#endif
}

}  // namespace invar::INVAR_ISA
