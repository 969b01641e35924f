// The linear kernels of one instruction set; compiled once per set (isa_list.cmake).

#include "kernels/cpu/linear-inl.h"

#include "kernels/kernel_table.h"

namespace invar::INVAR_ISA {

void fill_linear(KernelTable& t);  // declared per set by kernel_table.cc
void fill_linear(KernelTable& t) {
  t.quantize_row = quantize_row;
  t.linear = linear;
  t.unpack_row = unpack_row;
}

}  // namespace invar::INVAR_ISA
