#pragma once
// The links of the sampling chain beyond OpenAI's own fields, by the names that clients of llama.cpp and vLLM
// send. Ranges: docs/api.md.

#include "api/fields.h"
#include "api/service.h"
#include "sampling/params.h"

namespace invar::api {

inline constexpr size_t kMaxBreakers = 16;
inline constexpr size_t kMaxBreakerBytes = 64;

// Over what *params holds. Faults go to the sink of `fields`.
void read_chain_fields(const Fields& fields, const Service& service, SamplingParams* params);

}  // namespace invar::api
