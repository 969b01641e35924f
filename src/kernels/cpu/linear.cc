// The linear kernels of one instruction set; compiled once per set (isa_list.cmake).

#include "kernels/cpu/linear-inl.h"

#include "kernels/kernel_table.h"

namespace invar::INVAR_ISA {

// A Vf has 16 lanes; as many sums as there are registers for.
static int64_t fma_peak(int64_t rounds) {
  constexpr int kSums = kVfRegisters - 2 < 10 ? kVfRegisters - 2 : 10;
  Vf sum[kSums];
  for (Vf& s : sum)
    s = set1(0.5f);
  const Vf half = set1(0.5f);
  for (int64_t round = 0; round < rounds; ++round) {
    for (Vf& s : sum)
      s = fma(s, half, half);
  }
  Vf all = sum[0];
  for (int i = 1; i < kSums; ++i)
    all = add(all, sum[i]);
  float lanes[16];
  store(lanes, all);
  return lanes[0] < 0 ? 0 : rounds * kSums * 16;  // or the sums would not be needed
}

void fill_linear(KernelTable& t);  // declared per set by kernel_table.cc
void fill_linear(KernelTable& t) {
  t.quantize_row = quantize_row;
  t.linear = linear;
  t.dot_peak = dot_peak;
  t.fma_peak = fma_peak;
  t.unpack_row = unpack_row;
}

}  // namespace invar::INVAR_ISA
