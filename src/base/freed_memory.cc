#include "base/freed_memory.h"

#include <cstdlib>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace invar {

void return_large_blocks() {
#ifdef __GLIBC__
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);  // both fixed from here on
  ::mallopt(M_TRIM_THRESHOLD, 1 << 20);
#endif
}

void return_freed_pages() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

}  // namespace invar
