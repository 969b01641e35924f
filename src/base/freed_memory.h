#pragma once
// What the allocator does with memory that was freed. For the whole process; any thread.

namespace invar {

// Before the first large allocation: blocks of 1 MiB and more go back to the system when they are freed. By
// itself the C library keeps up to twice the largest block for each thread that ever had one.
void return_large_blocks();
// Gives back the pages that many small blocks have left. Takes milliseconds per 100 MB; others may wait for
// it.
void return_freed_pages();

}  // namespace invar
