#pragma once
// SamplingNumber: one of the numbers in SamplingParams, what requests, flags and models call it, and which
// values it takes: the same wherever it comes from. One table, read by all who take such numbers in.

#include <span>
#include <string>
#include <variant>

#include "sampling/params.h"

namespace invar {

struct SamplingNumber {
  using Member = std::variant<float SamplingParams::*, int32_t SamplingParams::*>;

  const char* name;          // of the member of a request
  const char* alias;         // another one; nullptr = none
  const char* flags;         // "--temp,--temperature"
  const char* gguf;          // general.sampling.NAME; nullptr = GGUF has none
  const char* hugging_face;  // in generation_config.json; nullptr = it has none
  double min, max;           // both included
  Member member;
  const char* help;

  bool whole() const { return std::holds_alternative<int32_t SamplingParams::*>(member); }
  bool within(double x) const;
  double get(const SamplingParams& params) const;
  // x: within the range and, of a whole number, whole.
  void set(double x, SamplingParams* params) const;
  std::string text(const SamplingParams& params) const;  // the shortest that reads as the same number
};

std::span<const SamplingNumber> sampling_numbers();

}  // namespace invar
