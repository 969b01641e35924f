#pragma once
// How soon a thread runs once it is woken. Calls concern the calling thread.

namespace invar {

// Asks the kernel for a short time slice: the thread gets no more of the processor than before, but runs at
// once when it is woken beside threads that compute (Linux 6.12 and later; earlier kernels ignore the wish).
void prefer_short_slices();

}  // namespace invar
