#pragma once
// What every generating request of the OpenAI family says besides its prompt: how tokens are chosen, how
// many, when to stop, how to send them. Ranges: sampling/numbers.h; limits: docs/api.md.

#include <cstdint>
#include <string>
#include <vector>

#include "api/fields.h"
#include "api/service.h"
#include "sampling/params.h"

namespace invar::api {

inline constexpr size_t kMaxStopStrings = 64;
inline constexpr size_t kMaxStopStringBytes = 1024;
inline constexpr size_t kMaxStopIds = 256;
inline constexpr size_t kMaxLogitBias = 2048;
inline constexpr int32_t kMaxLogprobs = 20;

struct GenerationFields {
  SamplingParams sampling;
  std::string seed;         // the number as receipts tell it: as sent, or the random one
  int64_t max_tokens = -1;  // -1: not given
  std::vector<std::string> stop;
  std::vector<int32_t> stop_ids;  // of the request; the model's own come on top unless ignore_eos
  bool ignore_eos = false;
  uint64_t cache_salt = 0;  // prompts share cached pages only under equal salts
  int32_t priority = 0;     // lower comes earlier
  int32_t n = 1;
  bool stream = false;
  bool include_usage = false;
};

// min_max_tokens: the least "max_tokens" that is allowed. Faults go to the sink of `fields`. Does not read
// "logprobs", which means different things in the two protocols.
GenerationFields read_generation_fields(const Fields& fields, const Service& service, int64_t min_max_tokens);

// "model": absent, one of ours, or 404.
void check_model(const Fields& fields, const Service& service);

// Fields that ask for something which is not built: an error, never ignored.
void refuse_unsupported(const Fields& fields);

// Whether a value is a token id of the model.
bool read_token_id(const json::value& value, const Path& path, ErrorSink& sink, int32_t vocab, int32_t* out);

}  // namespace invar::api
