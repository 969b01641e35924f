#include "base/thread_latency.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace invar {
namespace {

constexpr uint64_t kSliceNs = 700'000;  // half of Linux's usual slice; time for the frames of a step

// struct sched_attr in its first version (linux/sched/types.h), which glibc declares only from 2.41 on.
struct SchedulingAttributes {
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime_ns, deadline_ns, period_ns;
};
static_assert(sizeof(SchedulingAttributes) == 48);

}  // namespace

void prefer_short_slices() {
  SchedulingAttributes attributes{};
  if (::syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != 0) return;  // somebody chose another policy than SCHED_OTHER for this process
  attributes.size = sizeof attributes;
  attributes.runtime_ns = kSliceNs;
  ::syscall(SYS_sched_setattr, 0, &attributes, 0);  // a wish; failing is fine
}

}  // namespace invar
