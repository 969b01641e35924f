// The ops kernels of one instruction set; compiled once per set (isa_list.cmake).

#include "kernels/cpu/ops-inl.h"

#include "kernels/kernel_table.h"

namespace invar::INVAR_ISA {

void fill_ops(KernelTable& t);  // declared per set by kernel_table.cc
void fill_ops(KernelTable& t) {}

}  // namespace invar::INVAR_ISA
