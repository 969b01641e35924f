#pragma once
// What the links of the sampling chain ask for besides numbers: their order and DRY's breakers, by the names
// that clients of llama.cpp send. Limits: docs/api.md.

#include "api/fields.h"
#include "api/service.h"
#include "sampling/params.h"

namespace invar::api {

inline constexpr size_t kMaxBreakers = 16;
inline constexpr size_t kMaxBreakerBytes = 64;

// Over what *params holds, whose numbers were read. Faults go to the sink of `fields`.
void read_chain_fields(const Fields& fields, const Service& service, SamplingParams* params);

}  // namespace invar::api
