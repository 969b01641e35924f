#pragma once
// Processor: one link of the sampling chain. A file in processors/ and a line in processors.cc, whose order
// is the chain's order unless a request has its own (chain.h). Each sees what the ones before left and
// changes it in place; none keeps state. At least one candidate stays, unless mask and bias exclude all.

#include <cstdint>
#include <span>

#include "sampling/candidates.h"
#include "sampling/params.h"
#include "sampling/token_counts.h"

namespace invar {

struct ProcessorInput {
  const SamplingParams& params;
  const TokenCounts& counts;
  std::span<const uint32_t> mask;    // a bit per token id, 1 = allowed; empty = all
  std::span<const int32_t> not_yet;  // tokens that would end an answer shorter than min_tokens
  std::span<const int32_t> history;  // prompt and answer so far
  int32_t position;                  // of the token being chosen
  double mirostat_mu;
};

struct Processor {
  const char* name;
  const char* link;  // its name in a request's order; nullptr = has its place
  char letter;       // of the link, as llama.cpp abbreviates it; 0 = has none
  bool filter;       // does not run where mirostat does
  bool (*active)(const ProcessorInput& in);
  void (*apply)(const ProcessorInput& in, Candidates& candidates);
};

std::span<const Processor> processors();

}  // namespace invar
